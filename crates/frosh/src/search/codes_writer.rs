//! Writes a file of codes batch by batch, for collections whose codes should not be held in memory.

use crate::error::{Error, Result};
use crate::hasher::estimator;
use crate::model::Model;
use crate::search::codes::{Codes, HasherId};
use crate::search::serialization::QUANTIZED;
use crate::storage::atomic_file::AtomicFile;
use crate::storage::container::{Checksum, Facts, Saved, Shape, header, with_format};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Bytes that are buffered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes codes to a file batch by batch. The file is the same as that of [`Codes::save`].
///
/// [`CodesWriter::finish`] renames the complete file into place. A writer that is dropped before leaves no file. Memory
/// does not grow with the number of codes.
///
/// ```
/// use frosh::{Codes, CodesWriter, Config, Rows, Sketcher};
/// # let values: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("codes.frosh");
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(Rows::new(&values, 32)?)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// let mut writer = CodesWriter::create(&path, &hasher, false, None)?;
/// for batch in values.chunks(32 * 50) {
///     writer.push(&hasher.encode(Rows::new(batch, 32)?)?)?;
/// }
/// assert_eq!(writer.finish()?, 200);
/// assert_eq!(Codes::load(&path)?, hasher.encode(Rows::new(&values, 32)?)?);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug)]
pub struct CodesWriter {
    path: PathBuf,
    file: AtomicFile,
    hasher: HasherId,
    bits: usize,
    quantized: bool,
    rows: u64,
    /// Offset of the codes in the file: the length of the header for the expected number of rows.
    start: u64,
    codes: Vec<u8>,
    factors: Option<Factors>,
    checksum: Checksum,
}

/// Factors follow all codes in the file. Until [`CodesWriter::finish`] they are in an unnamed temporary file.
#[derive(Debug)]
struct Factors {
    bytes: usize,
    file: File,
    buffer: Vec<u8>,
}

impl CodesWriter {
    /// Starts a file of codes of this model, with or without factors. `rows` is the expected number of rows: if it is
    /// right, [`CodesWriter::finish`] need not copy the file to make room for a longer header.
    ///
    /// # Errors
    ///
    /// Fails if `factors` is true and the model has none, or if the file cannot be created.
    pub fn create(
        path: impl AsRef<Path>,
        model: impl Into<Model>,
        factors: bool,
        rows: Option<u64>,
    ) -> Result<Self> {
        let (path, model) = (path.as_ref().to_owned(), model.into());
        let file = AtomicFile::begin(&path)?;
        let io = |source| Error::Io { path: path.clone(), source };
        let factors = match (factors, model.factor_bytes()) {
            (false, _) => None,
            (true, 0) => {
                let advice = "fit the model from a sketch with a reservoir of rows";
                return Err(estimator::missing("the model", advice));
            }
            (true, bytes) => {
                let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let file = tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map_err(io)?;
                Some(Factors { bytes, file, buffer: Vec::new() })
            }
        };
        let (hasher, bits, quantized) =
            (model.id(), model.bits(), matches!(model, Model::Quantizer(_)));
        let checksum = Checksum::new(&facts(bits, hasher, quantized));
        let codes = Vec::new();
        let mut writer = Self {
            path,
            file,
            hasher,
            bits,
            quantized,
            rows: 0,
            start: 0,
            codes,
            factors,
            checksum,
        };
        writer.start = writer.header(rows.unwrap_or(0), "").len() as u64;
        let seeked = writer.file.file().seek(SeekFrom::Start(writer.start));
        seeked.map_err(|source| Error::Io { path: writer.path.clone(), source })?;
        Ok(writer)
    }

    /// Appends codes.
    ///
    /// # Errors
    ///
    /// Fails if the codes are of another model, if they have factors and the file does not (or the reverse), or if the
    /// file cannot be written.
    pub fn push(&mut self, codes: &Codes) -> Result<()> {
        let of = (codes.hasher(), codes.bits(), codes.is_quantized());
        if of != (self.hasher, self.bits, self.quantized) {
            let (left, right) = (self.hasher.to_string(), codes.hasher().to_string());
            return Err(Error::OtherHasher { left, right });
        }
        let (wanted, given) = (self.factors.as_ref().map(|f| f.bytes), codes.factors.as_ref());
        if wanted != given.map(|factors| factors.bytes) {
            let advice =
                "push codes with factors to a file with factors, plain ones to a plain file";
            return Err(estimator::missing("the file, or the codes,", advice));
        }
        self.checksum.update(codes.as_bytes());
        self.codes.extend_from_slice(codes.as_bytes());
        if let (Some(all), Some(more)) = (&mut self.factors, given) {
            all.buffer.extend_from_slice(&more.data);
        }
        self.rows += codes.len() as u64;
        self.flush(BUFFER_BYTES)
    }

    /// Completes the file and renames it into place. Returns the number of rows.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written or renamed.
    pub fn finish(mut self) -> Result<u64> {
        self.flush(1)?;
        self.complete().map_err(|source| Error::Io { path: self.path.clone(), source })?;
        self.file.commit()?;
        Ok(self.rows)
    }

    /// Writes each buffer that holds at least `least` bytes.
    fn flush(&mut self, least: usize) -> Result<()> {
        let factors = self.factors.as_mut().map(|f| (&mut f.buffer, &f.file));
        for (buffer, mut file) in [(&mut self.codes, self.file.file())].into_iter().chain(factors) {
            if buffer.len() >= least {
                let written = file.write_all(buffer);
                written.map_err(|source| Error::Io { path: self.path.clone(), source })?;
                buffer.clear();
            }
        }
        Ok(())
    }

    /// Writes the factors and the header.
    fn complete(&mut self) -> io::Result<()> {
        if let Some(factors) = &mut self.factors {
            factors.file.rewind()?;
            let mut piece = vec![0; BUFFER_BYTES];
            loop {
                let count = factors.file.read(&mut piece)?;
                if count == 0 {
                    break;
                }
                self.checksum.update(&piece[..count]);
                self.file.file().write_all(&piece[..count])?;
            }
        }
        let header = self.header(self.rows, &self.checksum.finish());
        if header.len() as u64 != self.start {
            self.move_tensors(header.len() as u64)?;
        }
        let mut file = self.file.file();
        file.rewind()?;
        file.write_all(&header)
    }

    /// Copies the tensors to offset `start` of a new file: the actual number of rows has another number of digits than the
    /// expected one, so the header has another length.
    fn move_tensors(&mut self, start: u64) -> io::Result<()> {
        let other = |error: Error| io::Error::other(error.to_string());
        let moved = AtomicFile::begin(&self.path).map_err(other)?;
        let mut from = self.file.file();
        from.seek(SeekFrom::Start(self.start))?;
        let mut to = moved.file();
        to.seek(SeekFrom::Start(start))?;
        io::copy(&mut from, &mut to)?;
        (self.file, self.start) = (moved, start);
        Ok(())
    }

    fn header(&self, rows: u64, checksum: &str) -> Vec<u8> {
        // All checksums have the same number of digits, so this one has the right length.
        let checksum = if checksum.is_empty() { self.checksum.finish() } else { checksum.into() };
        let tensor = |name, bytes: usize| -> Shape {
            (name, "U8", vec![rows as usize, bytes], rows * bytes as u64)
        };
        let codes = tensor("codes", self.bits.div_ceil(8));
        let factors = self.factors.as_ref().map(|factors| tensor("factors", factors.bytes));
        let tensors: Vec<Shape> = [Some(codes), factors].into_iter().flatten().collect();
        header(facts(self.bits, self.hasher, self.quantized), &checksum, &tensors)
    }
}

fn facts(bits: usize, hasher: HasherId, quantized: bool) -> Facts {
    let mut facts = Facts::from([("bits", bits.to_string()), ("hasher", hasher.to_string())]);
    if quantized {
        facts.insert("kind", QUANTIZED.to_owned());
    }
    with_format(facts, Codes::FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Hasher, Rows, Sketcher};

    const DIM: usize = 12;

    fn hasher(seed: u64) -> Hasher {
        let mut sketcher = Sketcher::new(Config::new(DIM).seed(seed)).unwrap();
        sketcher.push(rows(&values(400))).unwrap();
        sketcher.finish().hasher(11).unwrap()
    }

    fn values(n: usize) -> Vec<f32> {
        (0..n * DIM).map(|i| ((i * 7919 + i / DIM * 31) % 113) as f32).collect()
    }

    fn rows(values: &[f32]) -> Rows<'_, f32> {
        Rows::new(values, DIM).unwrap()
    }

    #[test]
    fn the_file_is_that_of_codes_saved_at_once() {
        let (dir, hasher) = (tempfile::tempdir().unwrap(), hasher(1));
        let (path, once) = (dir.path().join("written"), dir.path().join("saved"));
        for factors in [false, true] {
            // The expected number of rows is right, or has another number of digits, or is unknown.
            for (n, expected) in
                [(0, None), (7, Some(7)), (7, Some(100_000)), (1234, Some(3)), (1234, None)]
            {
                let values = values(n);
                let encode = |part: &[f32]| match factors {
                    true => hasher.encode_with_factors(rows(part)).unwrap(),
                    false => hasher.encode(rows(part)).unwrap(),
                };
                let mut writer = CodesWriter::create(&path, &hasher, factors, expected).unwrap();
                for part in values.chunks(DIM * 100) {
                    writer.push(&encode(part)).unwrap();
                }
                assert_eq!(writer.finish().unwrap(), n as u64);
                encode(&values).save(&once).unwrap();
                assert!(std::fs::read(&path).unwrap() == std::fs::read(&once).unwrap());
                assert_eq!(Codes::load(&path).unwrap(), encode(&values));
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
            }
        }
    }

    #[test]
    fn codes_that_do_not_belong_are_refused_and_an_unfinished_file_leaves_nothing() {
        let (dir, ours) = (tempfile::tempdir().unwrap(), hasher(1));
        let (path, values) = (dir.path().join("codes"), values(3));
        let mut writer = CodesWriter::create(&path, &ours, true, None).unwrap();
        let other = hasher(2).encode_with_factors(rows(&values)).unwrap();
        assert!(matches!(writer.push(&other), Err(Error::OtherHasher { .. })));
        let plain = ours.encode(rows(&values)).unwrap();
        assert!(matches!(writer.push(&plain), Err(Error::Factors { .. })));
        writer.push(&ours.encode_with_factors(rows(&values)).unwrap()).unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut writer = CodesWriter::create(&path, &ours, false, None).unwrap();
        let refused = writer.push(&ours.encode_with_factors(rows(&values)).unwrap());
        assert!(matches!(refused, Err(Error::Factors { .. })));
    }
}
