//! Makes the stores of the fixtures of the present format in a directory; `tests/fixtures/make`
//! packs them.

fn main() {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: make-fixture DIR");
        std::process::exit(2);
    };
    lodestore_tests::fixture::make(std::path::Path::new(&dir));
}
