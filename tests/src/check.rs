//! Takes down everything a store answers, so that an engine and a model, or two engines, can be
//! compared as a whole.

use std::fmt;

use bytes::Bytes;
use lodestore::{AllocHint, Answer, CollectionId, ObjectId, OmapRange, Read, StatFs};

use crate::model::{BLOCK, ErrKind, Model};

/// A name or key with its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Whatever answers reads.
pub type Query<'a> = dyn FnMut(Read) -> Result<Answer, ErrKind> + 'a;

/// Bytes asked for in one read.
const STEP: u64 = 1 << 20;

/// One object as read back.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectDump {
    /// Its collection.
    pub collection: CollectionId,
    /// Its name.
    pub oid: ObjectId,
    /// Logical size in bytes.
    pub size: u64,
    /// Allocation hint.
    pub hint: AllocHint,
    /// Index and crc32c of every block that is not all zeros.
    pub blocks: Vec<(u64, u32)>,
    /// Attributes.
    pub attrs: Vec<Entry>,
    /// Omap header.
    pub header: Vec<u8>,
    /// Omap.
    pub omap: Vec<Entry>,
}

/// Everything a store holds, sharing of blocks aside.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Dump {
    /// Collections with their bits.
    pub collections: Vec<(CollectionId, u8)>,
    /// Objects in order of collection and listing.
    pub objects: Vec<ObjectDump>,
}

/// A read that failed or answered something of another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// What was asked.
    pub read: String,
    /// What came back instead.
    pub got: String,
    /// The error, if it was one.
    pub kind: Option<ErrKind>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.read, self.got)
    }
}

/// The first 300 characters of something's debug form.
pub fn shorten(what: &dyn fmt::Debug) -> String {
    let text = format!("{what:?}");
    if text.len() > 300 { format!("{}…", text.chars().take(300).collect::<String>()) } else { text }
}

/// A short text of a read that names what it is about.
pub fn describe(read: &Read) -> String {
    shorten(read)
}

fn ask(query: &mut Query<'_>, read: Read) -> Result<Answer, Unreadable> {
    let shown = read.clone();
    query(read).map_err(|kind| Unreadable { read: describe(&shown), got: format!("{kind:?}"), kind: Some(kind) })
}

macro_rules! expect {
    ($query:expr, $read:expr, $pattern:pat $(if $guard:expr)? => $value:expr) => {{
        let read = $read;
        match ask($query, read.clone())? {
            $pattern $(if $guard)? => $value,
            other => {
                let got = format!("{other:?}").chars().take(200).collect();
                return Err(Unreadable { read: describe(&read), got, kind: None });
            }
        }
    }};
}

/// Every object of a collection, page by page.
pub fn list(query: &mut Query<'_>, c: CollectionId, page: usize) -> Result<Vec<ObjectId>, Unreadable> {
    let mut all: Vec<ObjectId> = Vec::new();
    let mut start = None;
    loop {
        let read = Read::List(c, start.clone(), None, page);
        let (objects, next) = expect!(query, read.clone(), Answer::Objects(o, n) => (o, n));
        let ordered = all.last().into_iter().chain(&objects).is_sorted_by(|a, b| a < b);
        if objects.len() > page || !ordered || next.as_ref().is_some_and(|n| objects.last().is_none_or(|l| n <= l)) {
            let got = format!("a page out of order or of the wrong size: {objects:?}, next {next:?}");
            return Err(Unreadable { read: describe(&read), got, kind: None });
        }
        all.extend(objects);
        match next {
            None => return Ok(all),
            next => start = next,
        }
    }
}

/// The whole omap, page by page.
pub fn omap(query: &mut Query<'_>, c: CollectionId, oid: &ObjectId, page: usize) -> Result<Vec<Entry>, Unreadable> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let range =
            OmapRange { lower: all.last().map(|(k, _)| k.clone()), after: !all.is_empty(), upper: None, max: page };
        let (entries, more) = expect!(query, Read::Omap(c, oid.clone(), range), Answer::Entries(e, m) => (e, m));
        let stuck = entries.is_empty() && more;
        let ordered = all.last().into_iter().chain(&entries).is_sorted_by(|a, b| a.0 < b.0);
        if stuck || !ordered || entries.len() > page {
            return Err(Unreadable {
                read: format!("omap of {oid}"),
                got: "a page that is empty, unordered or too long".into(),
                kind: None,
            });
        }
        all.extend(entries);
        if !more {
            return Ok(all);
        }
    }
}

/// Whether an engine's answer is the model's. A listing's cursor need not be the next object's
/// name, but must lie behind the page and not behind that object.
pub fn agree(got: &Result<Answer, ErrKind>, want: &Result<Answer, ErrKind>) -> bool {
    match (got, want) {
        (Ok(Answer::Objects(page, next)), Ok(Answer::Objects(want_page, want_next))) => {
            page == want_page
                && match (next, want_next) {
                    (None, None) => true,
                    (Some(n), Some(w)) => n <= w && page.last().is_none_or(|l| l < n),
                    _ => false,
                }
        }
        _ => got == want,
    }
}

/// Index and checksum of every block of `data` that is not all zeros; `data` starts at block `first`.
pub fn block_sums(first: u64, data: &[u8], out: &mut Vec<(u64, u32)>) {
    for (i, block) in data.chunks(BLOCK as usize).enumerate() {
        if block.iter().any(|b| *b != 0) {
            out.push((first + i as u64, crc32c::crc32c(block)));
        }
    }
}

/// Reads one object with everything it has.
pub fn object(query: &mut Query<'_>, c: CollectionId, oid: &ObjectId) -> Result<ObjectDump, Unreadable> {
    let stat = expect!(query, Read::Stat(c, oid.clone()), Answer::Stat(s) => s);
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < stat.size {
        let read = Read::Data(c, oid.clone(), vec![(at, STEP)]);
        let data: Bytes = expect!(query, read.clone(), Answer::Data(mut d) if d.len() == 1 => d.remove(0));
        if data.len() as u64 != STEP.min(stat.size - at) {
            return Err(Unreadable {
                read: describe(&read),
                got: format!("{} bytes of an object of {}", data.len(), stat.size),
                kind: None,
            });
        }
        block_sums(at / BLOCK, &data, &mut blocks);
        at += STEP;
    }
    let attrs = expect!(query, Read::Attrs(c, oid.clone()), Answer::Entries(e, false) => e);
    if attrs.len() != stat.attrs {
        return Err(Unreadable {
            read: format!("attributes of {oid}"),
            got: format!("{} of {}", attrs.len(), stat.attrs),
            kind: None,
        });
    }
    let header = expect!(query, Read::OmapHeader(c, oid.clone()), Answer::Attr(h) => h);
    let omap = omap(query, c, oid, 1000)?;
    Ok(ObjectDump { collection: c, oid: oid.clone(), size: stat.size, hint: stat.hint, blocks, attrs, header, omap })
}

impl Dump {
    /// Reads everything through `query`.
    pub fn take(query: &mut Query<'_>) -> Result<Dump, Unreadable> {
        let collections = expect!(query, Read::Collections, Answer::Collections(c) => c);
        let mut objects = Vec::new();
        for (c, _) in &collections {
            for oid in list(query, *c, 1000)? {
                objects.push(object(query, *c, &oid)?);
            }
        }
        Ok(Dump { collections, objects })
    }

    /// Everything a model holds.
    pub fn of(model: &Model) -> Dump {
        Dump::take(&mut |r| model.query(&r)).expect("a model answers every read of what it lists")
    }

    /// The first difference, in words.
    pub fn difference(&self, expected: &Dump) -> Option<String> {
        if self.collections != expected.collections {
            return Some(format!("collections are {:?}, expected {:?}", self.collections, expected.collections));
        }
        let names = |d: &Dump| d.objects.iter().map(|o| (o.collection, o.oid.clone())).collect::<Vec<_>>();
        if names(self) != names(expected) {
            let show = |d: &Dump| d.objects.iter().map(|o| format!("{}/{} ", o.collection, o.oid)).collect::<String>();
            return Some(format!("objects are [{}], expected [{}]", show(self), show(expected)));
        }
        let (got, want) = self.objects.iter().zip(&expected.objects).find(|(a, b)| a != b)?;
        Some(format!("object {}/{}: {}", got.collection, got.oid, got.difference(want)))
    }
}

impl ObjectDump {
    fn difference(&self, want: &ObjectDump) -> String {
        if self.size != want.size {
            return format!("size is {}, expected {}", self.size, want.size);
        }
        if self.blocks != want.blocks {
            let side = |a: &ObjectDump, b: &ObjectDump| {
                let missing: Vec<String> =
                    a.blocks.iter().filter(|x| !b.blocks.contains(x)).map(|(i, c)| format!("{i}:{c:08x}")).collect();
                missing.join(" ")
            };
            return format!("non-zero blocks (index:crc) read [{}], expected [{}]", side(self, want), side(want, self));
        }
        if self.attrs != want.attrs {
            return format!("attributes {:?}, expected {:?}", self.attrs, want.attrs);
        }
        if self.header != want.header || self.omap != want.omap {
            return format!(
                "omap of {} keys, header {:?}; expected {} keys, {:?}",
                self.omap.len(),
                self.header,
                want.omap.len(),
                want.header
            );
        }
        format!("hint {:?}, expected {:?}", self.hint, want.hint)
    }
}

/// Compares the space a store accounts for with what the model knows: exactly.
pub fn space(query: &mut Query<'_>, model: &Model) -> Result<(), String> {
    let got = match query(Read::StatFs) {
        Ok(Answer::Space(s)) => s,
        other => return Err(format!("statfs answered {other:?}")),
    };
    let want =
        StatFs { allocated: model.allocated(), stored: model.stored(), objects: model.objects().count() as u64, ..got };
    if got != want {
        let show = |s: &StatFs| format!("allocated {} stored {} objects {}", s.allocated, s.stored, s.objects);
        return Err(format!("statfs says {}, expected {}", show(&got), show(&want)));
    }
    if got.allocated + got.available != got.total {
        return Err(format!("allocated {} + available {} is not total {}", got.allocated, got.available, got.total));
    }
    extents(query, model)
}

/// Compares which blocks of every object are mapped.
pub fn extents(query: &mut Query<'_>, model: &Model) -> Result<(), String> {
    for (c, oid, object) in model.objects() {
        let want = object.extents(0, u64::MAX >> 1);
        match query(Read::Extents(c, oid.clone(), 0, u64::MAX >> 1)) {
            Ok(Answer::Extents(e)) if e == want => {}
            other => return Err(format!("extents of {oid}: {}, expected {}", shorten(&other), shorten(&want))),
        }
    }
    Ok(())
}

/// Which of the states `first..` of `states` a store is in: the index of the last that fits. States
/// that differ in what is mapped only (zeros, or a hole) are told apart by the account of space.
pub fn prefix(query: &mut Query<'_>, states: &[Model], first: usize) -> Result<usize, String> {
    let got = Dump::take(query).map_err(|e| e.to_string())?;
    let fits: Vec<usize> = (first..states.len()).filter(|k| got == Dump::of(&states[*k])).collect();
    if fits.is_empty() {
        let difference = got.difference(&Dump::of(&states[first])).unwrap_or_default();
        return Err(format!("none of {} states fits; to the first: {difference}", states.len() - first));
    }
    let spaces: Vec<_> = fits.iter().map(|k| space(query, &states[*k])).collect();
    match spaces.iter().rposition(Result::is_ok) {
        Some(i) => Ok(fits[i]),
        None => Err(format!("the contents fit, their space does not: {:?}", spaces.last())),
    }
}
