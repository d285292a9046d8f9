//! Made-up vectors, so that every example runs without data.
#![allow(dead_code, reason = "each example uses a part")]

use frosh_io::{Format, Kind, Output, Target, Values};
use std::path::{Path, PathBuf};

/// Dimension of the made-up vectors.
pub(crate) const DIM: usize = 96;

/// Noisy copies of 200 centres.
pub(crate) fn vectors(rows: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut uniform = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let centre = |row: usize, column: usize| {
        (((row % 200) * 7919 + column * 104_729) % 1000) as f32 / 1000.0
    };
    (0..rows * DIM).map(|i| centre(i / DIM, i % DIM) + 0.5 * uniform()).collect()
}

/// Writes such vectors to a .npy file.
pub(crate) fn make_vectors(path: &Path, rows: usize) -> frosh_io::Result<PathBuf> {
    let target = Target {
        format: Format::Npy,
        kind: Kind::F32,
        dim: DIM,
        rows: Some(rows as u64),
        name: None,
    };
    let mut output = Output::create(path, &target)?;
    output.write_values(&Values::F32(vectors(rows, 1)), DIM)?;
    output.finish()?;
    Ok(path.to_owned())
}
