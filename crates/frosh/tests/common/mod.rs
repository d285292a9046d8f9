//! Shared by the integration tests: a generator, planted data, reference implementations, real data, MAP.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};
use flate2::read::GzDecoder;
use frosh::{Codes, Config, Element, Hasher, Rows, Sketch, Sketcher};
use half::f16;
use rayon::prelude::*;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Random numbers by SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Strictly between 0 and 1.
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.bits() % (i as u64 + 1)) as usize);
        }
        order
    }

    /// k orthonormal directions, by two passes of Gram-Schmidt.
    pub(crate) fn orthonormal(&mut self, k: usize, dim: usize) -> Vec<Vec<f64>> {
        let mut basis: Vec<Vec<f64>> = Vec::new();
        for _ in 0..k {
            let mut v: Vec<f64> = (0..dim).map(|_| self.normal()).collect();
            for u in basis.iter().chain(&basis) {
                let along = dot(u, &v);
                v.iter_mut().zip(u).for_each(|(x, u)| *x -= along * u);
            }
            let length = dot(&v, &v).sqrt();
            v.iter_mut().for_each(|x| *x /= length);
            basis.push(v);
        }
        basis
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The paper's synthetic data: rows sum_i z_i D_ii u_i + noise / snr with D_ii = 1 - (i - 1) / k.
pub(crate) struct Planted {
    pub(crate) rows: Vec<f32>,
    pub(crate) basis: Vec<Vec<f64>>,
}

pub(crate) fn planted(n: usize, dim: usize, k: usize, snr: f64, seed: u64) -> Planted {
    let mut random = Random(seed << 32);
    let basis = random.orthonormal(k, dim);
    let mut rows = Vec::with_capacity(n * dim);
    for _ in 0..n {
        let mut row: Vec<f64> = (0..dim).map(|_| random.normal() / snr).collect();
        for (i, u) in basis.iter().enumerate() {
            let z = random.normal() * (1.0 - i as f64 / k as f64);
            row.iter_mut().zip(u).for_each(|(x, u)| *x += z * u);
        }
        rows.extend(row.iter().map(|x| *x as f32));
    }
    Planted { rows, basis }
}

pub(crate) fn learn<T: Element>(config: Config, dim: usize, data: &[T]) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(data, dim).unwrap()).unwrap();
    sketcher.finish()
}

pub(crate) fn encode<T: Element>(hasher: &Hasher, data: &[T]) -> Codes {
    hasher.encode(Rows::new(data, hasher.dim()).unwrap()).unwrap()
}

/// Share of the bits that differ.
pub(crate) fn differing(a: &Codes, b: &Codes) -> f64 {
    let pairs = a.as_bytes().iter().zip(b.as_bytes());
    let bits: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
    f64::from(bits) / (a.len() * a.bits()) as f64
}

/// Mean and centred scatter (A - mu)'(A - mu), in two passes and double precision.
pub(crate) fn scatter(data: &[f32], dim: usize) -> (Vec<f64>, Mat<f64>) {
    let n = data.len() / dim;
    let mut mean = vec![0.0; dim];
    for row in data.chunks_exact(dim) {
        mean.iter_mut().zip(row).for_each(|(m, x)| *m += f64::from(*x) / n as f64);
    }
    let mut scatter = Mat::zeros(dim, dim);
    for rows in data.chunks(2048 * dim) {
        let a = Mat::from_fn(rows.len() / dim, dim, |i, j| f64::from(rows[i * dim + j]) - mean[j]);
        matmul(scatter.as_mut(), Accum::Add, a.transpose(), a.as_ref(), 1.0, Par::rayon(0));
    }
    (mean, scatter)
}

/// Eigenvalues of M - B'B, ascending.
pub(crate) fn lost(scatter: &Mat<f64>, sketch: &Sketch) -> Vec<f64> {
    let (b, d) = (sketch.sketched(), sketch.dim());
    let b = Mat::from_fn(b.len() / d, d, |i, j| f64::from(b[i * d + j]));
    let mut difference = scatter.clone();
    matmul(difference.as_mut(), Accum::Add, b.transpose(), b.as_ref(), -1.0, Par::Seq);
    difference.self_adjoint_eigenvalues(Side::Lower).unwrap()
}

/// |M - B'B|_2 / tr M.
pub(crate) fn error(scatter: &Mat<f64>, sketch: &Sketch) -> f64 {
    let largest = lost(scatter, sketch).into_iter().fold(0f64, |m, v| m.max(v.abs()));
    largest / trace(scatter)
}

pub(crate) fn trace(a: &Mat<f64>) -> f64 {
    (0..a.nrows()).map(|i| a[(i, i)]).sum()
}

/// Least squares.
pub(crate) fn slope(xs: &[f64], ys: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (x0, y0) = (mean(xs), mean(ys));
    let up: f64 = xs.iter().zip(ys).map(|(x, y)| (x - x0) * (y - y0)).sum();
    up / xs.iter().map(|x| (x - x0).powi(2)).sum::<f64>()
}

/// 0 <= M - B'B <= removed, up to single precision; and the mass is the trace.
pub(crate) fn check_certificate(m: &Mat<f64>, sketch: &Sketch) {
    let (certificate, lost) = (sketch.certificate(), lost(m, sketch));
    let (removed, mass) = (certificate.removed, certificate.mass);
    let (least, most) = (lost[0], lost[lost.len() - 1]);
    assert!((mass / trace(m) - 1.0).abs() <= 1e-5, "mass {mass}, trace {}", trace(m));
    assert!(least >= -1e-5 * mass, "a direction gained {least} of {mass}");
    assert!(most <= removed * (1.0 + 1e-4) + 1e-5 * mass, "lost {most}, certified {removed}");
    let c = (sketch.sketch_rows() / 2 + 1) as f64;
    assert!(c * removed <= mass * (1.0 + 1e-5), "removed {removed} of {mass}");
}

/// Cosine of the largest principal angle between the planted directions and those of the hasher.
pub(crate) fn cosine(basis: &[Vec<f64>], hasher: &Hasher) -> f64 {
    let k = basis.len();
    let w = |j| hasher.direction(j).iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let product = Mat::from_fn(k, k, |i, j| dot(&basis[i], &w(j)));
    let squares = (&product * product.transpose()).self_adjoint_eigenvalues(Side::Lower).unwrap();
    squares[0].max(0.0).sqrt()
}

/// A train / database / query split with its truth: for every query its nearest 2 % of the database.
pub(crate) struct Benchmark {
    pub(crate) dim: usize,
    pub(crate) train: Vec<f32>,
    pub(crate) database: Vec<f32>,
    pub(crate) queries: Vec<f32>,
    relevant: Vec<Vec<bool>>,
}

impl Benchmark {
    /// A seeded permutation holds out 1,000 rows, of which 300 are queries. All other rows are for training, and
    /// 20,000 of those are the database.
    fn new(data: &[f32], dim: usize) -> Self {
        let order = Random(17).permutation(data.len() / dim);
        let take = |ids: &[usize]| -> Vec<f32> {
            ids.iter().flat_map(|i| &data[i * dim..(i + 1) * dim]).copied().collect()
        };
        let (queries, train) = (take(&order[..300]), take(&order[1000..]));
        let database = train[..20_000 * dim].to_vec();
        let truth = |query: &[f32]| {
            let rows = database.chunks_exact(dim).enumerate();
            let mut near: Vec<(f64, usize)> =
                rows.map(|(i, row)| (square_distance(query, row), i)).collect();
            near.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap());
            let mut relevant = vec![false; near.len()];
            near[..near.len() / 50].iter().for_each(|(_, i)| relevant[*i] = true);
            relevant
        };
        let relevant = queries.par_chunks_exact(dim).map(truth).collect();
        Self { dim, train, database, queries, relevant }
    }

    /// The same split and truth with every row mapped to `dim` values.
    pub(crate) fn mapped(&self, map: impl Fn(&[f32]) -> Vec<f32>, dim: usize) -> Self {
        Self {
            dim,
            train: map(&self.train),
            database: map(&self.database),
            queries: map(&self.queries),
            relevant: self.relevant.clone(),
        }
    }

    /// Mean over queries of the average precision of the full ranking, with ties in random order.
    pub(crate) fn map(&self, hasher: &Hasher) -> f64 {
        let (database, queries) = (encode(hasher, &self.database), encode(hasher, &self.queries));
        let asked: Vec<f64> = (0..queries.len())
            .into_par_iter()
            .map(|q| {
                let mut groups = vec![(0usize, 0usize); queries.bits() + 1];
                let rows = database.as_bytes().chunks_exact(database.bytes_per_row());
                for (row, relevant) in rows.zip(&self.relevant[q]) {
                    let group = &mut groups[hamming(queries.row(q), row)];
                    *group = (group.0 + 1, group.1 + usize::from(*relevant));
                }
                average_precision(&groups)
            })
            .collect();
        asked.iter().sum::<f64>() / asked.len() as f64
    }
}

/// By differences; 64 squares of bytes still sum exactly in single precision.
fn square_distance(a: &[f32], b: &[f32]) -> f64 {
    let parts = a.chunks(64).zip(b.chunks(64));
    parts.map(|(a, b)| f64::from(a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>())).sum()
}

fn hamming(a: &[u8], b: &[u8]) -> usize {
    let word = |w: &[u8]| u32::from_le_bytes(w.try_into().unwrap());
    let words = a.chunks_exact(4).zip(b.chunks_exact(4));
    words.map(|(a, b)| (word(a) ^ word(b)).count_ones() as usize).sum()
}

/// Expected average precision, groups of (tied items, relevant among them) from near to far:
/// section 12.2 of docs/algorithms.md.
pub(crate) fn average_precision(groups: &[(usize, usize)]) -> f64 {
    let (mut before, mut hits, mut sum) = (0.0, 0.0, 0.0);
    for &(items, relevant) in groups {
        let (t, k) = (items as f64, relevant as f64);
        if relevant > 0 {
            let slope = if items > 1 { (k - 1.0) / (t - 1.0) } else { 0.0 };
            let terms = (0..items).map(|i| i as f64);
            sum +=
                k / t * terms.map(|i| (hits + 1.0 + i * slope) / (before + i + 1.0)).sum::<f64>();
        }
        (before, hits) = (before + t, hits + k);
    }
    sum / hits
}

/// A file of the benchmark data. If it is missing, prints a note and returns `None`.
fn open(name: &str) -> Option<File> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    let file = File::open(&path).ok();
    if file.is_none() {
        skipped(&format!("there is no {}", path.display()));
    }
    file
}

/// Prints that a test was skipped and why, bypassing the capture of output. `.ci/run` counts these lines.
fn skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}

/// All 70,000 digits.
pub(crate) fn mnist() -> Option<Benchmark> {
    let mut pixels = Vec::new();
    for name in ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"] {
        let mut bytes = Vec::new();
        GzDecoder::new(open(&format!("mnist/{name}"))?).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes[..4], [0, 0, 8, 3]);
        pixels.extend(bytes[16..].iter().map(|x| f32::from(*x)));
    }
    assert_eq!(pixels.len(), 70_000 * 784);
    Some(Benchmark::new(&pixels, 784))
}

/// GIST descriptors of all 60,000 images of CIFAR-10: a version 1.0 npy file of little-endian halves.
pub(crate) fn cifar() -> Option<Benchmark> {
    let mut bytes = Vec::new();
    open("cifar10-gist512/base.npy")?.read_to_end(&mut bytes).unwrap();
    let body = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..body]);
    assert!(header.contains("'<f2'") && header.contains("False, 'shape': (60000, 512)"));
    let pairs = bytes[body..].chunks_exact(2);
    let values: Vec<f32> = pairs.map(|p| f16::from_le_bytes([p[0], p[1]]).to_f32()).collect();
    assert_eq!(values.len(), 60_000 * 512);
    Some(Benchmark::new(&values, 512))
}

/// Exact PCA: maps rows to their leading r principal coordinates.
pub(crate) struct Principal {
    mean: Vec<f64>,
    vectors: Mat<f32>,
}

impl Principal {
    pub(crate) fn of(data: &[f32], dim: usize, r: usize) -> Self {
        let (mean, scatter) = scatter(data, dim);
        let eigen = scatter.self_adjoint_eigen(Side::Lower).unwrap();
        let vectors = Mat::from_fn(dim, r, |i, j| eigen.U()[(i, dim - 1 - j)] as f32);
        Self { mean, vectors }
    }

    pub(crate) fn coordinates(&self, data: &[f32]) -> Vec<f32> {
        let (dim, r) = (self.vectors.nrows(), self.vectors.ncols());
        let mut out = vec![0f32; data.len() / dim * r];
        for (rows, out) in data.chunks(2048 * dim).zip(out.chunks_mut(2048 * r)) {
            let n = rows.len() / dim;
            let centred =
                Mat::from_fn(n, dim, |i, j| (f64::from(rows[i * dim + j]) - self.mean[j]) as f32);
            let to = faer::MatMut::from_row_major_slice_mut(out, n, r);
            let vectors: MatRef<'_, f32> = self.vectors.as_ref();
            matmul(to, Accum::Replace, centred.as_ref(), vectors, 1.0, Par::rayon(0));
        }
        out
    }
}
