//! The methods that are compared, behind one trait.
//!
//! A [`Learner`] is shown all rows as often as it asks for, and then makes encoders. Some learners serve several
//! methods or code lengths from the same passes (batch PCA its rotations, SGH and LSH all lengths): what they would
//! have done for each is done once, and counted for each.
//!
//! | method | passes | file |
//! |---|---|---|
//! | LSH, OSH, FROSH, DFROSH | 1 | `library.rs`: frosh itself |
//! | PCA, PCA-RR, PCA-ITQ | 1 (and keeps d x d numbers) | `pca.rs` |
//! | SGH | 2 (and keeps n x 300 numbers) | `sgh.rs` |
//! | OCH-style | 1, which takes a sample; then many over that | `och.rs` |

mod encoder;
mod kernel;
mod lanczos;
mod library;
mod och;
mod ordinal;
mod pca;
mod sgh;

pub(crate) use encoder::Encoder;
pub(crate) use library::{rotation, sizes, sketcher};
pub(crate) use pca::add_scatter;

use crate::data::Source;
use crate::error::Result;

/// A method of hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Lsh,
    Osh,
    Frosh,
    Dfrosh,
    Sgh,
    Och,
    Pca,
    PcaRr,
    PcaItq,
}

impl Method {
    pub(crate) const ALL: [Method; 9] = [
        Method::Lsh,
        Method::Osh,
        Method::Frosh,
        Method::Dfrosh,
        Method::Sgh,
        Method::Och,
        Method::Pca,
        Method::PcaRr,
        Method::PcaItq,
    ];

    /// Its name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Lsh => "LSH",
            Method::Osh => "OSH",
            Method::Frosh => "FROSH",
            Method::Dfrosh => "DFROSH",
            Method::Sgh => "SGH",
            Method::Och => "OCH-style",
            Method::Pca => "PCA",
            Method::PcaRr => "PCA-RR",
            Method::PcaItq => "PCA-ITQ",
        }
    }
}

/// What the learners must know of their task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) rows: u64,
    pub(crate) dim: usize,
    pub(crate) seed: u64,
    /// Whether OSH, FROSH and DFROSH leave out the rotation, as Algorithm 1 is printed.
    pub(crate) no_rotation: bool,
    /// Whether OSH, FROSH and DFROSH keep a sample of rows and learn their rotation from it (ITQ). Without that
    /// they rotate at random, as the released code of OSH does: the paper timed no learned rotation.
    pub(crate) learned_rotation: bool,
    /// Whether fitting runs on one thread, because it is timed.
    pub(crate) timed: bool,
}

/// Learns one or several hash functions from rows that it is shown.
pub(crate) trait Learner {
    /// The methods and code lengths that it can be asked for.
    fn gives(&self) -> Vec<(Method, usize)>;

    /// How often all rows must be shown.
    fn passes(&self) -> usize {
        1
    }

    /// Takes the next rows of a pass.
    fn push(&mut self, rows: &[f32]) -> Result<()>;

    /// Ends a pass.
    fn end_pass(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes the hash function of one of the methods that it gives.
    fn fit(&mut self, method: Method, bits: usize) -> Result<Encoder>;

    /// Seconds of the passes, where `measured` were measured around the calls: less for workers that would have
    /// worked side by side.
    fn pass_seconds(&self, measured: f64) -> f64 {
        measured
    }

    /// Sketch rows and block rows, for methods that have them.
    fn sizes(&self) -> (Option<u64>, Option<u64>) {
        (None, None)
    }
}

/// Dimension up to which a d x d matrix is within reach: at 4,096 its eigenvectors take most of a minute, at the 25,600
/// of FLICKR-25600 they would take hours.
const MOST_PCA_DIM: usize = 2048;

/// Whether a method can be run on rows of `dim` values with codes of `bits` bits.
pub(crate) fn possible(method: Method, dim: usize, bits: usize) -> bool {
    match method {
        Method::Lsh => true,
        Method::Pca | Method::PcaRr | Method::PcaItq => bits <= dim && dim <= MOST_PCA_DIM,
        Method::Sgh => bits <= sgh::ANCHORS as usize,
        _ => bits <= dim,
    }
}

/// The learners for these methods and code lengths.
pub(crate) fn learners(
    task: &Task,
    methods: &[Method],
    bits: &[usize],
) -> Result<Vec<Box<dyn Learner>>> {
    let mut all: Vec<Box<dyn Learner>> = Vec::new();
    let mut pca = Vec::new();
    for method in methods.iter().copied() {
        let bits: Vec<usize> =
            bits.iter().copied().filter(|b| possible(method, task.dim, *b)).collect();
        if bits.is_empty() {
            continue;
        }
        match method {
            Method::Lsh => all.push(Box::new(library::Lsh::new(task, bits)?)),
            Method::Osh | Method::Frosh | Method::Dfrosh => {
                for bits in bits {
                    all.push(Box::new(library::Sketching::new(task, method, bits)?));
                }
            }
            Method::Sgh => all.push(Box::new(sgh::Sgh::new(task, bits))),
            Method::Och => all.push(Box::new(och::Och::new(task, bits))),
            Method::Pca | Method::PcaRr | Method::PcaItq => {
                pca.extend(bits.into_iter().map(|b| (method, b)));
            }
        }
    }
    if !pca.is_empty() {
        all.push(Box::new(pca::Pca::new(task, pca)));
    }
    Ok(all)
}

/// Shows a learner all rows of a source, as often as it wants.
pub(crate) fn learn(learner: &mut dyn Learner, source: &dyn Source) -> Result<()> {
    for _ in 0..learner.passes() {
        source.each(&mut |rows| learner.push(rows))?;
        learner.end_pass()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
