//! Streams that change: data sets in an order in which later rows differ from earlier ones.

use super::files::{files_below, is_named};
use super::{FileSource, Ground, Memory, Source};
use crate::error::{Error, Result};
use crate::random::Random;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As in the files.
    File,
    /// All rows of a class after those of the class before.
    Class,
    /// By the first principal component.
    Component,
}

/// A stream that can be had.
pub(crate) struct Stream {
    pub(crate) name: String,
    files: Vec<PathBuf>,
    labels: Vec<PathBuf>,
    order: Order,
}

/// Steps of the power iteration for the first component, and rows that it looks at.
const STEPS: usize = 30;
const COMPONENT_ROWS: usize = 5000;

/// The streams whose data are in these folders; of a file of one's own, the file's order and that by component.
pub(crate) fn streams(data: &[PathBuf]) -> Result<Vec<Stream>> {
    let (own, folders): (Vec<&PathBuf>, Vec<&PathBuf>) = data.iter().partition(|p| p.is_file());
    let all = files_below(&folders.into_iter().cloned().collect::<Vec<_>>())?;
    let named = |names: &[&str]| -> Vec<PathBuf> {
        let of = |name: &&str| all.iter().find(|path| is_named(path, name)).cloned();
        names.iter().map(of).collect::<Option<_>>().unwrap_or_default()
    };
    let in_folder = |prefix: &str, name: &str| -> Vec<PathBuf> {
        let fits = |path: &&PathBuf| {
            let folder = path.parent().and_then(Path::file_name);
            let folder = folder.is_some_and(|f| f.to_string_lossy().starts_with(prefix));
            folder && path.file_name().is_some_and(|file| file == name)
        };
        all.iter().find(fits).cloned().into_iter().collect()
    };
    let mnist = named(&["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"]);
    let digits = named(&["train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"]);
    let gist = in_folder("cifar10-gist", "base.npy");
    let classes = in_folder("cifar10-gist", "labels.npy");
    let minilm = in_folder("debian-minilm", "base.npy");
    let glove = in_folder("glove", "base.npy");
    let stream = |name: &str, files: &[PathBuf], labels: &[PathBuf], order| Stream {
        name: name.into(),
        files: files.to_vec(),
        labels: labels.to_vec(),
        order,
    };
    let mut streams = vec![
        stream("mnist by class", &mnist, &digits, Order::Class),
        stream("minilm in file order", &minilm, &[], Order::File),
        stream("minilm by component", &minilm, &[], Order::Component),
        stream("glove in file order", &glove, &[], Order::File),
        stream("cifar10-gist by class", &gist, &classes, Order::Class),
    ];
    streams.retain(|s| !s.files.is_empty() && (s.order != Order::Class || !s.labels.is_empty()));
    for path in own {
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let files = std::slice::from_ref(path);
        streams.push(stream(&format!("{name} in file order"), files, &[], Order::File));
        streams.push(stream(&format!("{name} by component"), files, &[], Order::Component));
    }
    Ok(streams)
}

impl Stream {
    /// At most `most` rows in the order of the stream, and queries that are held out of all of it.
    pub(crate) fn ground(&self, most: u64, queries: u64, seed: u64) -> Result<Ground> {
        let source = FileSource::open(&self.files)?;
        let (rows, dim) = (source.rows(), source.dim());
        let mut random = Random::new(seed, 0x7374_7265_616d);
        let queries = queries.min(rows / 2);
        let chosen = random.choose(most.saturating_add(queries), rows);
        let held: HashSet<u64> = random
            .choose(queries, chosen.len() as u64)
            .into_iter()
            .map(|i| chosen[i as usize])
            .collect();
        let (base, queries) = super::ground::split(&source, &chosen, &held)?;
        let kept: Vec<u64> = chosen.into_iter().filter(|row| !held.contains(row)).collect();
        let mut keys = match self.order {
            Order::File => (0..kept.len()).map(|i| i as f64).collect(),
            Order::Class => self.classes(&kept, rows)?,
            Order::Component => component(&base.values, dim),
        };
        // Stable: rows of a class stay in the order of the file.
        let mut order: Vec<usize> = (0..kept.len()).collect();
        keys.iter_mut().for_each(|key| *key += 0.0);
        order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
        let row = |i: &usize| &base.values[i * dim..(i + 1) * dim];
        let values = order.iter().flat_map(row).copied().collect();
        Ground::of(self.name.clone(), Memory::new(values, dim), queries)
    }

    fn classes(&self, kept: &[u64], rows: u64) -> Result<Vec<f64>> {
        let mut labels: Vec<i64> = Vec::new();
        for path in &self.labels {
            labels.extend(frosh_io::whole_numbers::<i64>(path)?);
        }
        if labels.len() as u64 != rows {
            let why = format!("{} labels, but the data has {rows} rows", labels.len());
            return Err(Error::File { path: self.labels[0].clone(), why });
        }
        Ok(kept.iter().map(|row| labels[*row as usize] as f64).collect())
    }
}

/// The first principal component of each row, by power iteration.
fn component(values: &[f32], dim: usize) -> Vec<f64> {
    let n = values.len() / dim;
    let mut mean = vec![0f64; dim];
    for row in values.chunks_exact(dim) {
        mean.iter_mut().zip(row).for_each(|(m, x)| *m += f64::from(*x) / n as f64);
    }
    let along = |row: &[f32], v: &[f64]| -> f64 {
        row.iter().zip(&mean).zip(v).map(|((x, m), v)| (f64::from(*x) - m) * v).sum()
    };
    let step = n.div_ceil(COMPONENT_ROWS);
    let mut v: Vec<f64> = (0..dim).map(|i| 1.0 + (i % 7) as f64).collect();
    for _ in 0..STEPS {
        let mut next = vec![0f64; dim];
        for row in values.chunks_exact(dim).step_by(step) {
            let a = along(row, &v);
            let terms = next.iter_mut().zip(row).zip(&mean);
            terms.for_each(|((next, x), m)| *next += a * (f64::from(*x) - m));
        }
        let length = next.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length > 0.0 {
            v = next.iter().map(|x| x / length).collect();
        }
    }
    values.chunks_exact(dim).map(|row| along(row, &v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_component_is_that_of_the_largest_variance() {
        // Column 2 varies most.
        let value = |i: usize| ((i * 7919) % 101) as f32 * if i % 5 == 2 { 9.0 } else { 1.0 };
        let values: Vec<f32> = (0..5 * 400).map(value).collect();
        let found = component(&values, 5);
        let mut order: Vec<usize> = (0..400).collect();
        order.sort_by(|a, b| found[*a].total_cmp(&found[*b]));
        let along = |i: usize| values[order[i] * 5 + 2];
        let (first, last) = (along(0).min(along(399)), along(0).max(along(399)));
        assert!(first < 50.0 && last > 850.0, "{first} {last}");
    }
}
