//! safetensors: tensors by name, as Hugging Face stores the weights of models.
//!
//! Layout: the length of the header (8 bytes, little-endian); the header, a JSON object that gives type, shape
//! and place of each tensor; the values, little-endian, in C order. Vectors are the rows of a tensor of two
//! axes. `BF16` is widened to `f32`.
//!
//! The header is parsed here: the crate of that name wants the whole file in memory.
//!
//! Cost: none beyond reading.

use crate::batch::Kind;
use crate::byte_source::ByteSource;
use crate::error::{Fault, Hint};
use crate::flat::{Flat, FlatSink, checked_dim};
use crate::layout::{Layout, Stored};
use serde_json::Value;
use std::io::{Read, Seek, Write};

/// The longest header that is read. Those of large models have some hundred kilobytes.
const LONGEST: u64 = 1 << 24;

/// A tensor, as the header describes it.
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Its element type, such as `F32`.
    pub(crate) dtype: String,
    /// The length of each axis.
    pub(crate) shape: Vec<u64>,
    /// Where its values begin and end, counted from the end of the header.
    range: [u64; 2],
}

impl Tensor {
    fn parse(name: &str, entry: &Value) -> Option<Self> {
        let numbers = |key: &str| -> Option<Vec<u64>> {
            entry.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
        };
        Some(Self {
            name: name.to_owned(),
            dtype: entry.get("dtype")?.as_str()?.to_owned(),
            shape: numbers("shape")?,
            range: numbers("data_offsets")?.try_into().ok()?,
        })
    }

    /// Its shape and type, such as `1000 x 128 of f32`.
    pub(crate) fn describe(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        format!("{} of {}", shape.join(" x "), self.dtype.to_ascii_lowercase())
    }

    /// How its values are stored, if they can be read.
    fn stored(&self) -> Option<Stored> {
        Some(match &self.dtype[..] {
            "F64" => Stored::As(Kind::F64),
            "F32" => Stored::As(Kind::F32),
            "F16" => Stored::As(Kind::F16),
            "BF16" => Stored::Bf16,
            "U8" => Stored::As(Kind::U8),
            "I8" => Stored::As(Kind::I8),
            "I16" => Stored::I16,
            "U16" => Stored::U16,
            "I32" => Stored::I32,
            "U32" => Stored::U32,
            _ => return None,
        })
    }
}

/// Reads the header: all tensors, by name.
pub(crate) fn tensors(bytes: &mut ByteSource) -> Result<Vec<Tensor>, Fault> {
    let mut length = [0; 8];
    bytes.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if bytes.left().is_some_and(|left| length > left) || length > LONGEST {
        return Err(Fault::file(format!(
            "claims a header of {length} bytes, and at most {LONGEST} are read: it is damaged, or not of \
             format safetensors"
        )));
    }
    // Not allocated at once: a stream may hold less than it claims.
    let mut header = Vec::new();
    bytes.take(length).read_to_end(&mut header)?;
    let header: Value = serde_json::from_slice(&header)
        .map_err(|e| Fault::file(format!("its header is not JSON: it is damaged ({e})")))?;
    let header = header.as_object().ok_or("its header is not a JSON object: it is damaged")?;
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors
        .map(|(name, entry)| {
            Tensor::parse(name, entry).ok_or_else(|| {
                format!("its header describes {name:?} wrongly: it is damaged").into()
            })
        })
        .collect()
}

/// Opens the tensor of this name, or the only one that holds vectors.
pub(crate) fn open(mut bytes: ByteSource, wanted: Option<&str>) -> Result<Flat, Fault> {
    let tensors = tensors(&mut bytes)?;
    let list = |tensors: &[&Tensor]| {
        const SHOWN: usize = 40;
        let mut names: Vec<_> = tensors
            .iter()
            .take(SHOWN)
            .map(|t| format!("{:?} ({})", t.name, t.describe()))
            .collect();
        if tensors.len() > SHOWN {
            names.push(format!("and {} more", tensors.len() - SHOWN));
        }
        names.join(", ")
    };
    let all: Vec<&Tensor> = tensors.iter().collect();
    let tensor = match wanted {
        Some(name) => tensors.iter().find(|t| t.name == name).ok_or_else(|| {
            Fault::file(format!("has no tensor {name:?}; it has {}", list(&all)))
                .hint(Hint::ChooseDataset)
        })?,
        None => {
            let fits = |t: &&Tensor| t.shape.len() == 2 && t.stored().is_some();
            let found: Vec<&Tensor> = tensors.iter().filter(fits).collect();
            match found[..] {
                [one] => one,
                [] if all.is_empty() => return Err("holds no tensors".into()),
                [] => {
                    let why = format!("has no tensor of two axes; it has {}", list(&all));
                    return Err(why.into());
                }
                _ => {
                    let why = format!("has several tensors of two axes: {}", list(&found));
                    return Err(Fault::file(why).hint(Hint::ChooseDataset));
                }
            }
        }
    };
    let name = &tensor.name;
    let (Some(stored), [rows, dim]) = (tensor.stored(), &tensor.shape[..]) else {
        return Err(Fault::file(format!(
            "tensor {name:?} is {}, but vectors are the rows of a tensor of two axes, of f16, bf16, f32, f64 \
             or integers of 8, 16 or 32 bits",
            tensor.describe()
        ))
        .hint(Hint::ChooseDataset));
    };
    let (rows, dim) = (*rows, checked_dim(*dim)?);
    let [from, to] = tensor.range;
    let size = u128::from(rows) * (dim * stored.bytes()) as u128;
    if to.checked_sub(from).map(u128::from) != Some(size) {
        return Err(Fault::file(format!(
            "tensor {name:?} should take {size} bytes, but its place is from {from} to {to}: it is damaged"
        )));
    }
    bytes.skip(from)?;
    Flat::new(bytes, Layout::little_endian(stored), dim, Some(rows))
}

/// Writes a file with one tensor.
pub(crate) fn sink<W: Write + Seek>(
    writer: W,
    kind: Kind,
    dim: usize,
    name: &str,
) -> Result<FlatSink<W>, Fault> {
    let name = Value::from(name).to_string();
    let header = move |rows: u64| {
        let bytes = u128::from(rows) * (dim * kind.bytes()) as u128;
        let dtype = kind.name().to_ascii_uppercase();
        let mut text = format!(
            "{{{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{rows},{dim}],\"data_offsets\":[0,{bytes}]}}}}"
        )
        .into_bytes();
        // The same length for any number of rows. Readers expect values at a multiple of 8 bytes.
        text.resize((name.len() + 160).next_multiple_of(8), b' ');
        Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
    };
    FlatSink::new(writer, dim, header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Values;
    use crate::byte_source::Ending;
    use crate::source::Source;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    fn read(bytes: &[u8], name: Option<&str>) -> Result<Vec<f64>, String> {
        // As a stream, whose size is not known, and as a file: both must agree.
        let mut plain = tempfile::tempfile().unwrap();
        plain.write_all(bytes).unwrap();
        plain.rewind().unwrap();
        let stream: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(bytes.to_vec()));
        let sources = [ByteSource::file(plain).unwrap(), ByteSource::Stream(stream, Ending::Open)];
        let results = sources.map(|source| {
            let read = || -> Result<Vec<f64>, Fault> {
                let mut source = open(source, name)?;
                let mut values = Values::empty(source.shape().kind);
                let mut all = Vec::new();
                while source.read(2, &mut values)? > 0 {
                    all.extend(values.to_f64());
                }
                Ok(all)
            };
            read().map_err(|fault| fault.at(std::path::Path::new("f")).to_string())
        });
        assert_eq!(results[0].is_ok(), results[1].is_ok(), "{results:?}");
        results[0].clone()
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"I8","shape":[2,1],"data_offsets":[12,14]},
        "a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},
        "ids":{"dtype":"I64","shape":[0],"data_offsets":[14,14]}}"#;

    #[test]
    fn tensors_are_chosen_by_name() {
        let data: Vec<u8> = [1.0f32, -2.0, 0.5, 3.0, 4.0, -256.0]
            .iter()
            .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
            .chain([7, 0xF8])
            .collect();
        let bytes = file(TWO, &data);
        assert_eq!(read(&bytes, Some("a")).unwrap(), [1.0, -2.0, 0.5, 3.0, 4.0, -256.0]);
        assert_eq!(read(&bytes, Some("b")).unwrap(), [7.0, -8.0]);
        let why = read(&bytes, None).unwrap_err();
        assert!(why.contains("several tensors of two axes: \"a\" (3 x 2 of bf16)"), "{why}");
        assert!(read(&bytes, Some("c")).unwrap_err().contains("has no tensor \"c\""));
        assert!(read(&bytes, Some("ids")).unwrap_err().contains("0 of i64, but vectors are"));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], Some("b")).is_err(), "cut to {cut}");
        }
    }

    #[test]
    fn absurd_headers_are_refused() {
        let one = |entry: &str| file(&format!("{{\"a\":{entry}}}"), &[0; 16]);
        let huge = u64::MAX;
        let entries = [
            format!(r#"{{"dtype":"F32","shape":[{huge},{huge}],"data_offsets":[0,16]}}"#),
            format!(r#"{{"dtype":"F32","shape":[{huge},4],"data_offsets":[0,16]}}"#),
            format!(r#"{{"dtype":"F32","shape":[1,4],"data_offsets":[{huge},16]}}"#),
            format!(r#"{{"dtype":"F32","shape":[1,4],"data_offsets":[{},{huge}]}}"#, huge - 16),
            r#"{"dtype":"F32","shape":[1,4],"data_offsets":[16,0]}"#.into(),
            r#"{"dtype":"F32","shape":[1,4],"data_offsets":[8,24]}"#.into(),
            r#"{"dtype":"F32","shape":[4,0],"data_offsets":[0,0]}"#.into(),
            r#"{"dtype":"F32","shape":[-1,4],"data_offsets":[0,16]}"#.into(),
            r#"{"dtype":"F32","shape":[1,4],"data_offsets":[0]}"#.into(),
            r#"{"dtype":"F8_E4M3","shape":[4,4],"data_offsets":[0,16]}"#.into(),
            r#"{"dtype":7,"shape":[4,4],"data_offsets":[0,16]}"#.into(),
            "3".into(),
            "[".repeat(100_000),
        ];
        for entry in entries {
            assert!(read(&one(&entry), None).is_err(), "{}", &entry[..entry.len().min(99)]);
        }
        for header in ["[]", "", "{}", "not JSON", "{\"a\""] {
            assert!(read(&file(header, &[]), None).is_err(), "{header}");
        }
        for length in [9, 1 << 30, u64::MAX] {
            assert!(read(&length.to_le_bytes(), None).is_err());
        }
    }
}
