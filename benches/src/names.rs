//! What the benchmark's objects are called. Names are made where they are needed: a million of
//! them kept would be memory that is counted as the store's.

use lodestore::{CollectionId, ObjectId};

/// Pool of the benchmark's only collection, far from any that people number by hand.
const POOL: u64 = 0xbe_ac4;

/// The collection that holds the benchmark's objects.
pub fn collection() -> CollectionId {
    CollectionId::new(POOL, 0)
}

/// The n-th object.
pub fn object(n: u64) -> ObjectId {
    ObjectId::new(format!("bench-{n:08}"))
}

/// The object whose attributes say what the others were filled with.
pub(crate) fn marker() -> ObjectId {
    ObjectId::new("bench-marker")
}
