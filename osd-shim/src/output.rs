//! Standard output, as text or as one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints a text that ends in a line break.
pub fn text(s: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(s.as_bytes()).and_then(|()| out.flush())?)
}

/// Prints a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let s = serde_json::to_string_pretty(value).map_err(|e| Failure::other(format!("making JSON: {e}")))?;
    text(&(s + "\n"))
}
