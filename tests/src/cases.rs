//! The conformance cases: one function for each line of the contract, each written once for any
//! [`Subject`](crate::subject::Subject). The names are the contract.

pub mod attrs;
pub mod clones;
pub mod collections;
pub mod data;
pub mod limits;
pub mod objects;
pub mod omap;
pub mod renames;
pub mod space;

use crate::subject::Pair;

/// A case: drives a fresh pair and panics where the contract is broken.
pub type Case = fn(&mut Pair<'_>);

/// Declares cases and the list of them, so that no case can be forgotten by a test binary.
macro_rules! cases {
    ($($(#[$doc:meta])* fn $name:ident($pair:ident) $body:block)*) => {
        $($(#[$doc])* #[allow(missing_docs, reason = "the name says it")] pub fn $name($pair: &mut $crate::subject::Pair<'_>) $body)*

        /// Every case of this module with its name.
        pub const ALL: &[(&str, $crate::cases::Case)] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use cases;

/// Every case with its full name, `module::case`.
pub fn all() -> Vec<(String, Case)> {
    let modules: [(&str, &[(&str, Case)]); 9] = [
        ("attrs", attrs::ALL),
        ("clones", clones::ALL),
        ("collections", collections::ALL),
        ("data", data::ALL),
        ("limits", limits::ALL),
        ("objects", objects::ALL),
        ("omap", omap::ALL),
        ("renames", renames::ALL),
        ("space", space::ALL),
    ];
    modules
        .iter()
        .flat_map(|(m, cases)| cases.iter().map(move |(name, case)| (format!("{m}::{name}"), *case)))
        .collect()
}
