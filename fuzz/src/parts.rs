//! The library's own files, taken apart, changed, and put together again with a fitting checksum.

use crate::random::Random;
use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3;

struct Tensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

struct Parts {
    facts: BTreeMap<String, String>,
    tensors: Vec<Tensor>,
}

/// Bytes of a value.
fn width(dtype: &str) -> usize {
    match dtype {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        _ => 1,
    }
}

impl Parts {
    /// Takes a file apart that is sound but for its checksum, and whose header may be longer or shorter than
    /// it says.
    fn of(file: &[u8]) -> Option<Self> {
        let body = file.get(8..)?;
        let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        let header = values.next()?.ok()?;
        let said = u64::from_le_bytes(*file.first_chunk()?);
        let least = values.byte_offset();
        let end = usize::try_from(said).ok().filter(|end| (least..=body.len()).contains(end));
        let data = &body[end.unwrap_or(least)..];
        let (mut facts, mut tensors) = (BTreeMap::new(), Vec::new());
        for (name, entry) in header.as_object()? {
            if name == "__metadata__" {
                for (name, value) in entry.as_object()? {
                    facts.insert(name.clone(), value.as_str()?.to_owned());
                }
                continue;
            }
            let numbers = |key: &str| -> Option<Vec<usize>> {
                entry[key].as_array()?.iter().map(|n| n.as_u64().map(|n| n as usize)).collect()
            };
            let &[from, to] = &numbers("data_offsets")?[..] else { return None };
            let tensor = Tensor {
                name: name.clone(),
                dtype: entry["dtype"].as_str()?.to_owned(),
                shape: numbers("shape")?,
                bytes: data.get(from..to)?.to_vec(),
            };
            tensors.push((from, tensor));
        }
        tensors.sort_by_key(|tensor| tensor.0);
        Some(Self { facts, tensors: tensors.into_iter().map(|tensor| tensor.1).collect() })
    }

    fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The id that a hasher of this content has.
    fn id(&self) -> Option<String> {
        let fact = |name: &str| self.facts.get(name);
        let number = |name: &str| fact(name)?.parse::<u64>().ok();
        let (dim, bits) = (number("dim")?, number("bits")?);
        let projection = self.tensor("projection")?;
        let mut hash = Xxh3::new();
        hash.update(fact("metric")?.as_bytes());
        hash.update(&[u8::from(fact("exact_centre")? == "true")]);
        hash.update(&dim.to_le_bytes());
        hash.update(&bits.to_le_bytes());
        hash.update(&self.tensor("mean")?.bytes);
        let (values, bits) = (projection.bytes.as_chunks::<4>().0, bits as usize);
        if bits > values.len() {
            return None;
        }
        for k in 0..bits {
            values.iter().skip(k).step_by(bits).for_each(|value| hash.update(value));
        }
        if fact("norm_low").is_some() {
            // Models that keep a byte for each factor are of an earlier time.
            let [low, high] = match fact("gain_low") {
                Some(_) => ["gain_low", "gain_high"],
                None => ["ratio_low", "ratio_high"],
            };
            if low == "ratio_low" {
                hash.update(b"joint");
            }
            for name in ["norm_low", "norm_high", low, high] {
                hash.update(&fact(name)?.parse::<f64>().ok()?.to_le_bytes());
            }
        }
        Some(format!("{:032x}", hash.digest128()))
    }

    fn build(mut self) -> Vec<u8> {
        if self.facts.get("format").is_some_and(|f| f == "frosh-hasher")
            && let Some(id) = self.id()
        {
            self.facts.insert("id".into(), id);
        }
        self.facts.remove("checksum");
        let mut hash = Xxh3::new();
        for (name, value) in &self.facts {
            hash.update(&[name.as_bytes(), &[0], value.as_bytes(), &[0]].concat());
        }
        self.tensors.iter().for_each(|tensor| hash.update(&tensor.bytes));
        self.facts.insert("checksum".into(), format!("xxh3:{:016x}", hash.digest()));
        let mut header = json!({"__metadata__": self.facts});
        let mut at = 0;
        for Tensor { name, dtype, shape, bytes } in &self.tensors {
            let offsets = [at, at + bytes.len()];
            header[name] = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
            at += bytes.len();
        }
        let mut header = header.to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        self.tensors.iter().for_each(|tensor| file.extend(&tensor.bytes));
        file
    }

    fn mutate(&mut self, random: &mut Random) {
        match random.below(8) {
            0..=2 => self.change_fact(random),
            3 | 4 => self.change_values(random),
            5 => self.change_rows(random),
            6 => self.change_dim(random),
            _ => self.change_structure(random),
        }
    }

    fn change_fact(&mut self, random: &mut Random) {
        const EVIL: [&str; 24] = [
            "0",
            "1",
            "2",
            "3",
            "4",
            "6",
            "8",
            "16",
            "64",
            "4096",
            "16384",
            "16777216",
            "1073741824",
            "4611686018427387904",
            "9223372036854775807",
            "18446744073709551615",
            "-1",
            "0.5",
            "1e300",
            "nan",
            "inf",
            "true",
            "false",
            "",
        ];
        const NAMES: [&str; 13] = [
            "frosh",
            "frosh-sparse",
            "osh",
            "lsh",
            "l2",
            "cosine",
            "none",
            "random",
            "isotropic",
            "itq",
            "refined",
            "half",
            "one",
        ];
        let which = random.below(self.facts.len());
        let Some((_, value)) = self.facts.iter_mut().nth(which) else { return };
        let number = value.parse::<u64>();
        *value = match (number, random.below(4)) {
            (Ok(n), 0 | 1) => n.wrapping_add(random.next() % 17).wrapping_sub(8).to_string(),
            (Ok(n), 2) => [n.wrapping_mul(2), n / 2][random.below(2)].to_string(),
            (Ok(_), _) => EVIL[random.below(EVIL.len())].into(),
            (Err(_), 0) => EVIL[random.below(EVIL.len())].into(),
            (Err(_), _) => NAMES[random.below(NAMES.len())].into(),
        };
    }

    /// Other numbers in a tensor; hostile ones, or near those that were there.
    fn change_values(&mut self, random: &mut Random) {
        let which = random.below(self.tensors.len());
        let Some(tensor) = self.tensors.get_mut(which).filter(|t| !t.bytes.is_empty()) else {
            return;
        };
        let width = width(&tensor.dtype);
        if random.below(3) == 0 {
            let size = tensor.bytes.len();
            fuzzer_mutate(&mut tensor.bytes, size, size);
            return;
        }
        let at = random.below(tensor.bytes.len() / width) * width;
        let value: [u8; 8] = match (&tensor.dtype[..], random.below(6)) {
            ("F64", 0) => 1e300f64.to_le_bytes(),
            ("F64", 1) => f64::MAX.to_le_bytes(),
            ("F64", 2) => (-0.0f64).to_le_bytes(),
            ("F64", 3) => f64::MIN_POSITIVE.to_le_bytes(),
            ("F32", 0) => u64::from(f32::MAX.to_bits()).to_le_bytes(),
            ("F32", 1) => u64::from(f32::MIN_POSITIVE.to_bits()).to_le_bytes(),
            ("F32", 2) => u64::from(1e30f32.to_bits()).to_le_bytes(),
            ("F16", 0) => 0x7bff_u64.to_le_bytes(),
            (_, 4) => [0; 8],
            _ => random.next().to_le_bytes(),
        };
        if let Some(to) = tensor.bytes.get_mut(at..at + width) {
            to.copy_from_slice(&value[..width]);
        }
    }

    /// More or fewer rows of a tensor; sometimes of those of the same length too, and of the fact that tells
    /// their number.
    fn change_rows(&mut self, random: &mut Random) {
        let which = random.below(self.tensors.len());
        let Some(rows) = self.tensors.get(which).and_then(|t| t.shape.first().copied()) else {
            return;
        };
        let new = match random.below(4) {
            0 => 0,
            1 => rows + 1,
            2 => rows.saturating_sub(1),
            _ => random.below(2 * rows + 3),
        };
        let together = random.below(2) == 0;
        for (i, tensor) in self.tensors.iter_mut().enumerate() {
            if i == which || together && tensor.shape.first() == Some(&rows) {
                tensor.shape[0] = new;
                tensor.fit();
            }
        }
        if random.below(2) == 0 {
            for value in self.facts.values_mut().filter(|value| **value == rows.to_string()) {
                *value = new.to_string();
            }
        }
    }

    /// Another dimension, wherever the old one stands.
    fn change_dim(&mut self, random: &mut Random) {
        let old = self.facts.get("dim").and_then(|dim| dim.parse::<usize>().ok());
        let Some(old) = old else { return };
        let new = [1, 2, 3, 8, 16, 17, 33, old + 1, old.saturating_sub(1)][random.below(9)];
        self.facts.insert("dim".into(), new.to_string());
        for tensor in &mut self.tensors {
            let lengths = tensor.shape.iter_mut().filter(|length| **length == old);
            lengths.for_each(|length| *length = new);
            tensor.fit();
        }
    }

    fn change_structure(&mut self, random: &mut Random) {
        let which = random.below(self.tensors.len());
        match random.below(6) {
            0 if !self.tensors.is_empty() => drop(self.tensors.remove(which)),
            1 => {
                let fact = self.facts.keys().nth(random.below(self.facts.len())).cloned();
                fact.map(|fact| self.facts.remove(&fact));
            }
            2 => drop(self.facts.insert("note".into(), format!("{:x}\u{fffd}", random.next()))),
            _ => {
                let Some(tensor) = self.tensors.get_mut(which) else { return };
                match random.below(5) {
                    0 => tensor.shape.push(1),
                    1 => tensor.shape.insert(0, 1),
                    2 => tensor.shape.reverse(),
                    3 => tensor.shape.iter_mut().for_each(|length| *length = usize::MAX),
                    _ => tensor.dtype = ["F64", "F32", "F16", "U8", "I64"][random.below(5)].into(),
                }
            }
        }
    }
}

impl Tensor {
    /// Makes the bytes as long as the shape wants them.
    fn fit(&mut self) {
        let values =
            self.shape.iter().try_fold(width(&self.dtype), |n, length| n.checked_mul(*length));
        if let Some(size) = values.filter(|size| *size <= 1 << 16) {
            self.bytes.resize(size, 0);
        }
    }
}

/// Changes a file: mostly its parts, sometimes its bytes.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random::new(seed);
    let raw = random.below(8);
    let Some(mut parts) = Parts::of(&data[..size]).filter(|_| raw != 0) else {
        return fuzzer_mutate(data, size, max_size);
    };
    let file = if raw == 1 {
        let size = fuzzer_mutate(data, size, max_size);
        match Parts::of(&data[..size]) {
            Some(parts) => parts.build(),
            None => return size,
        }
    } else {
        for _ in 0..1 + random.below(3) {
            parts.mutate(&mut random);
        }
        parts.build()
    };
    match data.get_mut(..file.len().min(max_size)) {
        Some(to) if to.len() == file.len() => {
            to.copy_from_slice(&file);
            file.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}
