//! lodestore-osd-shim
