//! The sample of rows, read from the file of a sketch without this library.

use frosh::Sketch;
use half::f16;
use safetensors::SafeTensors;

/// The sample of rows as the file of a sketch holds it.
pub(crate) struct Sample {
    pub(crate) keys: Vec<u64>,
    pub(crate) rows: Vec<Vec<f64>>,
}

pub(crate) fn sample(sketch: &Sketch) -> Sample {
    let bytes = sketch.to_bytes();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str, size: usize| -> Vec<Vec<u8>> {
        file.tensor(name).unwrap().data().chunks_exact(size).map(<[u8]>::to_vec).collect()
    };
    let floats = |name| -> Vec<f64> {
        let values = words(name, 4).into_iter();
        values.map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
    };
    let dim = sketch.dim();
    let values: Vec<f64> = match file.tensor("reservoir_shifts") {
        Err(_) => {
            let halves = words("reservoir", 2).into_iter();
            halves.map(|b| f16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect()
        }
        // Bytes, with a power of two for every 32 of them.
        Ok(shifts) => {
            let (shifts, blocks) = (shifts.data(), dim.div_ceil(32));
            let shift = |i: usize| i32::from(shifts[i / dim * blocks + i % dim / 32]);
            let bytes = file.tensor("reservoir").unwrap().data().iter().enumerate();
            bytes.map(|(i, b)| f64::from(*b as i8) / 127.0 / 2f64.powi(shift(i))).collect()
        }
    };
    let keys = words("reservoir_keys", 8).into_iter();
    let keys: Vec<u64> = keys.map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
    let (origin, scales) = (floats("reservoir_origin"), floats("reservoir_scales"));
    let rows = values.chunks_exact(dim).zip(&scales);
    let rows = rows
        .map(|(row, scale)| row.iter().zip(&origin).map(|(x, o)| x * scale + o).collect())
        .collect();
    Sample { keys, rows }
}
