//! Streams that change: the data sets in orders that drift, and what can be measured on them. Not in the paper.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the streams: data sets in an order |
//! | `../experiments/streams.rs` | what becomes of MAP with one model, with new ones, and with versions |
//! | `predictor.rs` | how well the gap on the sample predicts what an old model loses on all rows |

mod predictor;

pub use predictor::{Pair, Predictor, Score, drift_predictor};

use crate::data::{FileSource, Memory, Source, files_below};
use crate::error::{Error, Result};
use crate::random::Random;
use frosh::{Config, Rotation, Rows, Sketcher};
use std::path::{Path, PathBuf};

/// The order of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As the files have it.
    File,
    /// By class labels.
    Class,
    /// By the coordinate along the leading principal direction.
    Component,
    /// At random: nothing drifts.
    Shuffled,
}

impl Order {
    /// A short name, since a legend has little room.
    fn name(self) -> &'static str {
        match self {
            Order::File => "file",
            Order::Class => "class",
            Order::Component => "axis",
            Order::Shuffled => "random",
        }
    }
}

/// A data set, and the orders it is read in.
struct Known {
    name: &'static str,
    /// The folder's name begins with this.
    folder: &'static str,
    /// Its files in order, packed or not.
    files: &'static [&'static str],
    labels: &'static [&'static str],
    orders: &'static [Order],
}

const KNOWN: [Known; 5] = [
    Known {
        name: "MNIST",
        folder: "mnist",
        files: &["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"],
        labels: &["train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"],
        orders: &[Order::Class, Order::Shuffled],
    },
    Known {
        name: "MiniLM",
        folder: "debian-minilm",
        files: &["base.npy"],
        labels: &[],
        orders: &[Order::File, Order::Component],
    },
    Known {
        name: "GloVe",
        folder: "glove",
        files: &["base.npy"],
        labels: &[],
        orders: &[Order::File],
    },
    Known {
        name: "GIST",
        folder: "cifar10-gist",
        files: &["base.npy"],
        labels: &["labels.npy"],
        orders: &[Order::Class],
    },
    Known {
        name: "SIFT",
        folder: "bigann10k",
        files: &["base.npy"],
        labels: &[],
        orders: &[Order::Component],
    },
];

/// A stream in memory.
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) dim: usize,
    /// Rows in the order of the stream.
    pub(crate) values: Vec<f32>,
}

impl Stream {
    /// The first `rows` rows.
    pub(crate) fn first(&self, rows: usize) -> &[f32] {
        &self.values[..rows * self.dim]
    }

    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.dim
    }
}

/// Where the rows of a set are, and in which orders they are read.
struct Found {
    name: String,
    files: Vec<PathBuf>,
    labels: Vec<PathBuf>,
    orders: Vec<Order>,
}

/// The sets that are in these folders, and files that were named themselves. Names of sets that are not there go to
/// `missing`.
fn find(data: &[PathBuf], missing: &mut Vec<&'static str>) -> Result<Vec<Found>> {
    let all = files_below(data)?;
    let mut found = Vec::new();
    for known in &KNOWN {
        let inside = |path: &&PathBuf| {
            let folder = path.parent().and_then(Path::file_name);
            folder.is_some_and(|name| name.to_string_lossy().starts_with(known.folder))
        };
        let named = |name: &&str| {
            let own = |path: &&PathBuf| {
                let file = path.file_name().map(|n| n.to_string_lossy().into_owned());
                file.is_some_and(|file| file == **name || file.strip_suffix(".gz") == Some(name))
            };
            all.iter().filter(inside).find(own).cloned()
        };
        let files: Option<Vec<PathBuf>> = known.files.iter().map(named).collect();
        let labels: Option<Vec<PathBuf>> = known.labels.iter().map(named).collect();
        match (files, labels) {
            (Some(files), Some(labels)) => found.push(Found {
                name: known.name.into(),
                files,
                labels,
                orders: known.orders.to_vec(),
            }),
            _ => missing.push(known.name),
        }
    }
    for path in data.iter().filter(|path| path.is_file()) {
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let orders = vec![Order::File, Order::Component];
        found.push(Found { name, files: vec![path.clone()], labels: Vec::new(), orders });
    }
    Ok(found)
}

impl Found {
    /// The rows in one of the orders, thinned out evenly to at most `most`.
    fn stream(&self, order: Order, most: usize, seed: u64) -> Result<Stream> {
        let source = FileSource::open(&self.files)?;
        let memory = Memory::load(&source, source.rows())?;
        let (dim, rows) = (source.dim(), memory.values.len() / source.dim());
        let mut places: Vec<usize> = (0..rows).collect();
        match order {
            Order::File => {}
            Order::Class => {
                let mut labels: Vec<u32> = Vec::with_capacity(rows);
                for path in &self.labels {
                    labels.extend(frosh_io::whole_numbers::<u32>(path)?);
                }
                if labels.len() != rows {
                    let why = format!("{} labels for {rows} rows", labels.len());
                    return Err(Error::File { path: self.labels[0].clone(), why });
                }
                places.sort_by_key(|place| labels[*place]);
            }
            Order::Component => {
                let along = component(&memory)?;
                places.sort_by(|a, b| along[*a].total_cmp(&along[*b]));
            }
            Order::Shuffled => {
                let shuffled = Random::new(seed, 0x7374_7265_616d).permutation(rows);
                places = shuffled.into_iter().map(|place| place as usize).collect();
            }
        }
        let kept = rows.min(most);
        let row = |i: usize| &memory.values[places[i * rows / kept] * dim..][..dim];
        let values = (0..kept).flat_map(row).copied().collect();
        Ok(Stream { name: format!("{} {}", self.name, order.name()), dim, values })
    }
}

/// The coordinate of each row along the leading principal direction.
fn component(memory: &Memory) -> Result<Vec<f32>> {
    let rows = memory.view()?;
    let mut sketcher = Sketcher::new(Config::new(rows.dim()).sketch_rows(16))?;
    sketcher.push(rows)?;
    let hasher = sketcher.finish().hasher_with(1, Rotation::None)?;
    let direction = hasher.direction(0);
    let dot = |i: usize| rows.row(i).iter().zip(direction).map(|(x, w)| x * w).sum();
    Ok((0..rows.len()).map(dot).collect())
}

/// What is done with a stream; it is given the function that tells of progress.
type Work<'a> = &'a mut dyn FnMut(&Stream, &mut dyn FnMut(&str)) -> Result<()>;

/// Whether there is data to make streams of.
pub(crate) fn any(data: &[PathBuf]) -> Result<bool> {
    Ok(!find(data, &mut Vec::new())?.is_empty())
}

/// Calls `work` with every stream, one after the other. Sets that are not there are told of.
pub(crate) fn each(
    data: &[PathBuf],
    most: usize,
    seed: u64,
    progress: &mut dyn FnMut(&str),
    work: Work<'_>,
) -> Result<()> {
    let mut missing = Vec::new();
    let found = find(data, &mut missing)?;
    for name in missing {
        progress(&format!("{name}: skipped, its files are not in --data"));
    }
    if found.is_empty() {
        return Err(Error::Usage(
            "there is no data set to make streams of: name a folder with sets, or files of vectors, with --data".into(),
        ));
    }
    for set in &found {
        for order in &set.orders {
            work(&set.stream(*order, most, seed)?, progress)?;
        }
    }
    Ok(())
}

/// Views of rows.
pub(crate) fn view(values: &[f32], dim: usize) -> Result<Rows<'_, f32>> {
    Ok(Rows::new(values, dim)?)
}
