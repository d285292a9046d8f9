//! The learner of an index: a [`Sketcher`] that is saved with the rows, in the same change.
//!
//! A program that adds a stream of rows and learns from them can be killed at any time. Rows and learner of the index are
//! always those of one moment, so it can go on from there.

use super::manifest::{LearnerFacts, Manifest};
use super::{Index, NewRows};
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::sketch::Sketcher;

/// Rows that are given to a learner at a time.
const BATCH_ROWS: usize = 4096;

impl LearnerFacts {
    /// The name of its file.
    pub(super) fn file(&self) -> String {
        file(self.number)
    }
}

/// The name of a learner's file.
pub(super) fn file(number: u64) -> String {
    format!("{number:06}.sketcher")
}

impl NewRows<'_> {
    /// Saves the state of a learner with the rows: [`NewRows::commit`] adds the rows and replaces the learner of the
    /// index in one change. [`Index::sketcher`] returns it.
    ///
    /// ```
    /// use frosh::{Config, Index, IndexWriter, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let rows = Rows::new(&data, 32)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path().join("index");
    /// let mut sketcher = Sketcher::new(Config::new(32))?;
    /// sketcher.push(rows.slice(0..100))?;
    /// let mut writer = IndexWriter::create(&folder, sketcher.sketch().hasher(16)?, true, None)?;
    /// let mut new = writer.add();
    /// new.push(rows.slice(0..100))?;
    /// new.learned(&sketcher).commit()?;
    /// drop((writer, sketcher));
    ///
    /// // Another process goes on.
    /// let mut sketcher = Index::open(&folder)?.sketcher()?.expect("it was saved");
    /// assert_eq!(sketcher.rows(), 100);
    /// sketcher.push(rows.slice(100..200))?;
    /// let mut writer = IndexWriter::open(&folder)?;
    /// let mut new = writer.add();
    /// new.push(rows.slice(100..200))?;
    /// new.learned(&sketcher).commit()?;
    /// assert_eq!(writer.index().learned_rows(), Some(200));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn learned(mut self, sketcher: &Sketcher) -> Self {
        self.learner = Some((sketcher.to_bytes(), sketcher.rows()));
        self
    }
}

impl Index {
    /// The learner that was saved with the last rows ([`NewRows::learned`]); `None` if there is none. It continues bit
    /// for bit.
    ///
    /// # Errors
    ///
    /// Fails if its file is damaged, or if a writer has replaced it since this index was opened: open the index again.
    pub fn sketcher(&self) -> Result<Option<Sketcher>> {
        let load = |facts: &LearnerFacts| Sketcher::load(self.folder.join(facts.file()));
        self.manifest.learner.as_ref().map(load).transpose()
    }

    /// Rows that the learner of the index has seen; `None` if there is no learner.
    pub fn learned_rows(&self) -> Option<u64> {
        self.manifest.learner.as_ref().map(|learner| learner.rows)
    }

    /// Gives all stored vectors to a learner, segment after segment. Returns their number: 0 if the index stores none.
    ///
    /// # Errors
    ///
    /// Fails if the vectors have another dimension than the learner, or are damaged.
    pub fn learn_stored(&self, sketcher: &mut Sketcher) -> Result<u64> {
        let (Some(stored), Some(form)) = (self.layout.vectors, self.layout.vectors()) else {
            return Ok(0);
        };
        let mut rows = 0;
        for segment in &self.segments {
            let live: Vec<u64> = segment.live_rows().iter().collect();
            for part in live.chunks(BATCH_ROWS) {
                let mut vectors = Vec::with_capacity(part.len());
                for row in part {
                    let row = usize::try_from(*row).unwrap_or(usize::MAX);
                    vectors.extend(segment.arrays.vector(row, form.width(), self.verify)?);
                }
                sketcher.push(Rows::new(&stored.values(&vectors), self.layout.dim)?)?;
            }
            rows += live.len() as u64;
        }
        Ok(rows)
    }

    /// Verifies the learner. A writer may have replaced it since the index was opened.
    pub(super) fn check_learner(&self) -> Result<()> {
        match self.sketcher() {
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound
                    && Manifest::load(&self.folder)?.generation != self.manifest.generation =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
