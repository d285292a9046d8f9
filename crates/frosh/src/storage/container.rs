//! The container of all files: [safetensors](https://huggingface.co/docs/safetensors), so that any
//! language can open them.
//!
//! Tensors have names. Facts are key-value strings in the metadata. Three facts are in every file:
//! `format` (the kind of file), `version` (of that format), and `checksum` (XXH3 of the other facts and all
//! tensor bytes). Numbers are little-endian. The same content gives the same bytes.
//!
//! Reading checks the version, the lengths (before memory is allocated for them), the checksum, names and
//! shapes, and that every float is finite. Writing replaces the target atomically
//! ([`atomic_file`](crate::storage::atomic_file)).

use crate::error::{Error, Result};
use crate::storage::atomic_file::AtomicFile;
use half::f16;
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::str::FromStr;
use xxhash_rust::xxh3::Xxh3;

/// The version that is written, unless the content needs a newer one.
const VERSION: u32 = 1;
/// The newest version that can be read.
const NEWEST_VERSION: u32 = 4;
/// The longest header that is read; the limit of safetensors.
const MAX_HEADER: u64 = 100_000_000;

/// A type with a file format.
pub(crate) trait Saved: Sized {
    /// Name of the format.
    const FORMAT: &'static str;
    /// Adds facts and tensors to a file.
    fn write<'a>(&'a self, file: &mut Writer<'a>);
    /// Reads facts and tensors from a file.
    fn read(file: &Reader<'_>) -> Result<Self>;
}

/// Collects the facts and tensors of a file.
#[derive(Default)]
pub(crate) struct Writer<'a> {
    facts: Facts,
    tensors: Vec<Tensor<'a>>,
    /// The version that a reader must know, if it is not [`VERSION`].
    version: Option<u32>,
}

/// Name, type, shape, bytes.
type Tensor<'a> = (&'static str, &'static str, Vec<usize>, Cow<'a, [u8]>);

/// The bytes of the values, least significant first.
pub(crate) fn little_endian<T: bytemuck::Pod>(values: &[T]) -> Cow<'_, [u8]> {
    let mut bytes = Cow::Borrowed(bytemuck::cast_slice::<T, u8>(values));
    if cfg!(target_endian = "big") {
        bytes.to_mut().chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
    }
    bytes
}

impl<'a> Writer<'a> {
    pub(crate) fn fact(&mut self, name: &'static str, value: impl Display) {
        self.facts.insert(name, value.to_string());
    }

    /// Notes that readers of earlier versions would misunderstand the file.
    pub(crate) fn require_version(&mut self, version: u32) {
        self.version = self.version.max(Some(version));
    }

    fn tensor<T: bytemuck::Pod>(
        &mut self,
        name: &'static str,
        dtype: &'static str,
        shape: &[usize],
        values: &[T],
    ) {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = little_endian(values).into_owned();
        self.tensors.push((name, dtype, shape.to_vec(), bytes.into()));
    }

    pub(crate) fn f32s(&mut self, name: &'static str, shape: &[usize], values: &[f32]) {
        self.tensor(name, "F32", shape, values);
    }
    pub(crate) fn f64s(&mut self, name: &'static str, shape: &[usize], values: &[f64]) {
        self.tensor(name, "F64", shape, values);
    }
    pub(crate) fn f16s(&mut self, name: &'static str, shape: &[usize], values: &[f16]) {
        self.tensor(name, "F16", shape, values);
    }
    pub(crate) fn i8s(&mut self, name: &'static str, shape: &[usize], values: &[i8]) {
        self.tensor(name, "I8", shape, values);
    }
    pub(crate) fn u64s(&mut self, name: &'static str, values: &[u64]) {
        self.tensor(name, "U64", &[values.len()], values);
    }
    pub(crate) fn i64s(&mut self, name: &'static str, values: &[i64]) {
        self.tensor(name, "I64", &[values.len()], values);
    }
    /// Borrows the bytes, because codes may take most of the memory.
    pub(crate) fn u8s(&mut self, name: &'static str, shape: &[usize], values: &'a [u8]) {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        self.tensors.push((name, "U8", shape.to_vec(), values.into()));
    }

    pub(crate) fn owned_bytes(&mut self, name: &'static str, values: Vec<u8>) {
        self.tensors.push((name, "U8", vec![values.len()], values.into()));
    }

    /// The pieces of the file in order: the header, and each tensor.
    fn finish(self, format: &str) -> Vec<Cow<'a, [u8]>> {
        let mut facts = with_format(self.facts, format);
        if let Some(version) = self.version {
            facts.insert("version", version.to_string());
        }
        let mut sum = Checksum::new(&facts);
        self.tensors.iter().for_each(|tensor| sum.update(&tensor.3));
        let shapes: Vec<Shape> =
            self.tensors.iter().map(|t| (t.0, t.1, t.2.clone(), t.3.len() as u64)).collect();
        let header: Cow<'a, [u8]> = header(facts, &sum.finish(), &shapes).into();
        std::iter::once(header).chain(self.tensors.into_iter().map(|t| t.3)).collect()
    }
}

/// Facts in the order of their names.
pub(crate) type Facts = BTreeMap<&'static str, String>;

/// Name, type, shape and number of bytes of a tensor.
pub(crate) type Shape = (&'static str, &'static str, Vec<usize>, u64);

/// Adds the facts that every file has.
pub(crate) fn with_format(mut facts: Facts, format: &str) -> Facts {
    facts.insert("format", format.to_owned());
    facts.insert("version", VERSION.to_string());
    facts
}

/// The header of a file, preceded by its length.
pub(crate) fn header(mut facts: Facts, checksum: &str, tensors: &[Shape]) -> Vec<u8> {
    facts.insert("checksum", checksum.to_owned());
    // Keys are sorted and written here, because the order of a JSON library depends on its build features.
    let mut entries = BTreeMap::from([("__metadata__", serde_json::json!(facts).to_string())]);
    let mut at = 0;
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes;
        let shape = serde_json::json!(shape);
        let entry = format!(r#"{{"data_offsets":[{at},{end}],"dtype":"{dtype}","shape":{shape}}}"#);
        entries.insert(name, entry);
        at = end;
    }
    let entries: Vec<String> =
        entries.iter().map(|(name, entry)| format!(r#""{name}":{entry}"#)).collect();
    let mut header = format!("{{{}}}", entries.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header].concat()
}

/// XXH3 of the facts in the order of their names, then of the tensors in file order.
#[derive(Clone)]
pub(crate) struct Checksum(Xxh3);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.finish())
    }
}

impl Checksum {
    pub(crate) fn new(facts: &Facts) -> Self {
        Self::of(facts.iter().map(|(name, value)| (*name, value.as_str())))
    }

    fn of<'a>(facts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut hash = Xxh3::new();
        for (name, value) in facts {
            hash.update(name.as_bytes());
            hash.update(&[0]);
            hash.update(value.as_bytes());
            hash.update(&[0]);
        }
        Self(hash)
    }

    pub(crate) fn update(&mut self, tensor: &[u8]) {
        self.0.update(tensor);
    }

    pub(crate) fn finish(&self) -> String {
        format!("xxh3:{:016x}", self.0.digest())
    }
}

/// The facts and tensors of a file whose checksum was verified.
pub(crate) struct Reader<'a> {
    facts: BTreeMap<String, String>,
    tensors: SafeTensors<'a>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], format: &str) -> Result<Self> {
        let damaged = |e| Error::file(format!("not a frosh file, or cut short or damaged ({e})"));
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let facts: BTreeMap<String, String> =
            metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        let got = facts.get("format").map_or("none", String::as_str);
        if got != format {
            let why =
                format!("has format {got:?}, but {format:?} is needed: is it the wrong file?");
            return Err(Error::file(why));
        }
        let version = facts.get("version").and_then(|v| v.parse::<u32>().ok());
        match version {
            Some(1..=NEWEST_VERSION) => {}
            Some(later) if later > NEWEST_VERSION => {
                return Err(Error::file(format!(
                    "is of version {later} of {format:?}, and this frosh reads up to version \
                     {NEWEST_VERSION}: use a newer frosh"
                )));
            }
            _ => return Err(Error::file("has no valid version: it is damaged")),
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let others = facts.iter().filter(|f| f.0 != "checksum").map(|(k, v)| (&k[..], &v[..]));
        // `deserialize` has checked that the tensor bytes are contiguous after the header.
        let mut sum = Checksum::of(others);
        sum.update(&bytes[8 + header..]);
        if facts.get("checksum") != Some(&sum.finish()) {
            let why = "its checksum does not fit its content: it is damaged, make or copy it again";
            return Err(Error::file(why));
        }
        Ok(Self { facts, tensors })
    }

    /// A fact that may be missing.
    pub(crate) fn optional(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// The length of the last axis of a tensor; `None` if there is no such tensor, or it has no axes.
    pub(crate) fn width(&self, name: &str) -> Option<usize> {
        self.tensors.tensor(name).ok()?.shape().last().copied()
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.names().contains(&name)
    }

    /// A fact, parsed.
    pub(crate) fn fact<T: FromStr>(&self, name: &str) -> Result<T> {
        self.fact_by(name, |text| text.parse().ok())
    }

    /// A fact, parsed by a function.
    pub(crate) fn fact_by<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        let text = self.facts.get(name).map_or("nothing", String::as_str);
        parse(text).ok_or_else(|| Error::file(format!("{name} is {text:?}, which is not valid")))
    }

    /// A tensor of this type and shape; `None` in the shape means any length.
    fn tensor<T: bytemuck::Pod>(
        &self,
        name: &str,
        dtype: Dtype,
        shape: &[Option<usize>],
    ) -> Result<Vec<T>> {
        let missing = |_| Error::file(format!("has no tensor {name:?}"));
        let view = self.tensors.tensor(name).map_err(missing)?;
        let fits = view.shape().len() == shape.len()
            && view.shape().iter().zip(shape).all(|(got, want)| want.is_none_or(|w| w == *got));
        if view.dtype() != dtype || !fits {
            let want: Vec<String> =
                shape.iter().map(|s| s.map_or("any".into(), |s| s.to_string())).collect();
            return Err(Error::file(format!(
                "tensor {name:?} is {:?} of shape {:?}, expected {dtype:?} of shape [{}]",
                view.dtype(),
                view.shape(),
                want.join(", ")
            )));
        }
        let mut values = vec![T::zeroed(); view.data().len() / size_of::<T>()];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(view.data());
        if cfg!(target_endian = "big") {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
            bytes.chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
        }
        Ok(values)
    }

    pub(crate) fn f32s(&self, name: &str, shape: &[Option<usize>]) -> Result<Vec<f32>> {
        let values = self.tensor(name, Dtype::F32, shape)?;
        finite(name, &values, |x: &f32| x.is_finite())?;
        Ok(values)
    }
    pub(crate) fn f64s(&self, name: &str, shape: &[Option<usize>]) -> Result<Vec<f64>> {
        let values = self.tensor(name, Dtype::F64, shape)?;
        finite(name, &values, |x: &f64| x.is_finite())?;
        Ok(values)
    }
    pub(crate) fn f16s(&self, name: &str, shape: &[Option<usize>]) -> Result<Vec<f16>> {
        let values = self.tensor(name, Dtype::F16, shape)?;
        finite(name, &values, |x: &f16| x.is_finite())?;
        Ok(values)
    }
    pub(crate) fn i8s(&self, name: &str, shape: &[Option<usize>]) -> Result<Vec<i8>> {
        self.tensor(name, Dtype::I8, shape)
    }
    pub(crate) fn u64s(&self, name: &str) -> Result<Vec<u64>> {
        self.tensor(name, Dtype::U64, &[None])
    }
    pub(crate) fn i64s(&self, name: &str, len: usize) -> Result<Vec<i64>> {
        self.tensor(name, Dtype::I64, &[Some(len)])
    }
    pub(crate) fn u8s(&self, name: &str, shape: &[Option<usize>]) -> Result<Vec<u8>> {
        self.tensor(name, Dtype::U8, shape)
    }
}

fn finite<T>(name: &str, values: &[T], test: impl Fn(&T) -> bool) -> Result<()> {
    match values.iter().position(|x| !test(x)) {
        None => Ok(()),
        Some(i) => Err(Error::file(format!("tensor {name:?} holds NaN or infinity at entry {i}"))),
    }
}

/// The error for parts that are well-formed but inconsistent.
pub(crate) fn contradiction(what: &str) -> Error {
    Error::file(format!("contradicts itself: {what}"))
}

fn pieces<T: Saved>(value: &T) -> Vec<Cow<'_, [u8]>> {
    let mut writer = Writer::default();
    value.write(&mut writer);
    writer.finish(T::FORMAT)
}

pub(crate) fn to_bytes<T: Saved>(value: &T) -> Vec<u8> {
    pieces(value).concat()
}

pub(crate) fn from_bytes<T: Saved>(bytes: &[u8]) -> Result<T> {
    T::read(&Reader::new(bytes, T::FORMAT)?)
}

pub(crate) fn save<T: Saved>(value: &T, path: &Path) -> Result<()> {
    let file = AtomicFile::begin(path)?;
    let io = |source| Error::Io { path: path.to_owned(), source };
    for piece in pieces(value) {
        file.file().write_all(&piece).map_err(io)?;
    }
    file.commit()
}

pub(crate) fn load<T: Saved>(path: &Path) -> Result<T> {
    let bytes =
        std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    from_bytes(&bytes).map_err(|error| match error {
        Error::File { path: None, why } => Error::File { path: Some(path.to_owned()), why },
        other => Error::File { path: Some(path.to_owned()), why: other.to_string() },
    })
}

/// The format in the header of a file; `None` if it is not a safetensors file, or has no format.
pub(crate) fn format_of(path: &Path) -> Result<Option<String>> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    format_in(std::fs::File::open(path).map_err(io)?).map_err(io)
}

/// The format in the header that `source` begins with, as [`format_of`] has it for a file.
pub(crate) fn format_in(mut source: impl Read) -> io::Result<Option<String>> {
    let mut length = Vec::new();
    source.by_ref().take(8).read_to_end(&mut length)?;
    let Ok(length) = <[u8; 8]>::try_from(length) else { return Ok(None) };
    // Headers of frosh have a few kilobytes, and the length of a note.
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Ok(None);
    }
    let mut header = Vec::new();
    source.take(length).read_to_end(&mut header)?;
    let header: Option<serde_json::Value> = serde_json::from_slice(&header).ok();
    let format = header.as_ref().and_then(|h| h["__metadata__"]["format"].as_str());
    Ok(format.map(str::to_owned))
}

/// Implements `to_bytes`, `from_bytes`, `save` and `load` for a type.
macro_rules! saved {
    ($t:ty) => {
        impl $t {
            /// The bytes of a file. Equal content gives equal bytes.
            pub fn to_bytes(&self) -> Vec<u8> {
                $crate::storage::container::to_bytes(self)
            }

            /// Reads the bytes of a file.
            ///
            /// # Errors
            ///
            /// [`Error::File`](crate::Error::File) if the bytes are damaged, of another kind of file, or of a newer
            /// version.
            pub fn from_bytes(bytes: &[u8]) -> $crate::Result<Self> {
                $crate::storage::container::from_bytes(bytes)
            }

            /// Writes a file. An existing file is replaced atomically: after a failure or a crash, the old file or the
            /// complete new one is there.
            ///
            /// # Errors
            ///
            /// [`Error::Io`](crate::Error::Io) if writing fails, [`Error::File`](crate::Error::File) if the path is a
            /// folder or a device.
            pub fn save(&self, path: impl AsRef<std::path::Path>) -> $crate::Result<()> {
                $crate::storage::container::save(self, path.as_ref())
            }

            /// Reads a file.
            ///
            /// # Errors
            ///
            /// [`Error::Io`](crate::Error::Io) if reading fails, [`Error::File`](crate::Error::File) if the file is
            /// damaged, of another kind, or of a newer version.
            pub fn load(path: impl AsRef<std::path::Path>) -> $crate::Result<Self> {
                $crate::storage::container::load(path.as_ref())
            }
        }
    };
}
pub(crate) use saved;
