//! Loads the library's own files, uses what they hold, and writes them again.

use frosh::{Codes, Hasher, Quantizer, Rotation, Rows, Sketch, Sketcher};

/// Larger sketches are sound, but take too long to be used here.
const SKETCH_ROWS: usize = 64;
const BLOCK_ROWS: usize = 1 << 12;

/// Small whole numbers of every direction.
fn data(rows: usize, dim: usize) -> Vec<f32> {
    (0..rows * dim).map(|i| (i.wrapping_mul(i * 31 + 17) % 41) as f32 - 20.0).collect()
}

/// Loads, writes, loads again: the second time the bytes must be the same.
macro_rules! again {
    ($t:ty, $bytes:expr) => {{
        let Ok(loaded) = <$t>::from_bytes($bytes) else { return };
        let written = loaded.to_bytes();
        let second = <$t>::from_bytes(&written).expect("what was written can be read");
        assert!(second.to_bytes() == written);
        loaded
    }};
}

pub fn sketcher(bytes: &[u8]) {
    let mut sketcher = again!(Sketcher, bytes);
    let _ = sketcher.bytes();
    if sketcher.sketch_rows() > SKETCH_ROWS || sketcher.block_rows() > BLOCK_ROWS {
        return;
    }
    let dim = sketcher.dim();
    use_sketch(&sketcher.sketch());
    let (before, values) = (sketcher.rows(), data(70, dim));
    sketcher.push(Rows::new(&values, dim).expect("whole rows")).expect("good rows are taken");
    assert_eq!(sketcher.rows(), before + 70);
    use_sketch(&sketcher.finish());
}

pub fn sketch(bytes: &[u8]) {
    let sketch = again!(Sketch, bytes);
    if sketch.sketch_rows() > SKETCH_ROWS {
        return;
    }
    use_sketch(&sketch);
    match Sketch::merge([&sketch, &sketch]) {
        Ok(both) => use_sketch(&both),
        // The file may claim so many rows that twice as many cannot be counted.
        Err(why) => assert!(sketch.rows() > 1 << 61, "a sketch is like itself: {why}"),
    }
}

pub fn hasher(bytes: &[u8]) {
    use_hasher(&again!(Hasher, bytes));
}

pub fn quantizer(bytes: &[u8]) {
    let model = again!(Quantizer, bytes);
    let dim = model.dim();
    let values = data(20, dim);
    let rows = Rows::new(&values, dim).expect("whole rows");
    let codes = model.encode(rows).expect("good rows are taken");
    assert_eq!((codes.len(), codes.bytes_per_row()), (20, model.bytes()));
    let queries = model.queries(rows).expect("good rows are taken");
    let hits = codes.nearest(&queries, 3).expect("codes of the same model");
    assert!(hits.iter().all(|hits| hits.len() == 3 && hits.is_sorted()));
}

pub fn codes(bytes: &[u8]) {
    let mut codes = again!(Codes, bytes);
    let rows = codes.len();
    assert_eq!(codes.as_bytes().len(), rows * codes.bytes_per_row());
    codes.append(&codes.clone()).expect("codes of the same hasher");
    assert_eq!(codes.len(), 2 * rows);
    if codes.len() > 200 {
        return;
    }
    if codes.is_quantized() {
        assert!(codes.nearest(&codes, 3).is_err());
        return;
    }
    for (i, found) in codes.nearest(&codes, 3).expect("codes of the same hasher").iter().enumerate()
    {
        assert_eq!(found.len(), codes.len().min(3));
        // Every code is there twice.
        assert!(found[..2].iter().all(|near| near.distance == 0.0));
        assert!(found.is_sorted());
        assert_eq!(codes.distance(i, &codes, (i + rows) % codes.len()).ok(), Some(0));
    }
}

fn use_sketch(sketch: &Sketch) {
    let spectrum = sketch.spectrum();
    assert!(spectrum.len() <= sketch.sketch_rows());
    let _ = (sketch.certificate(), sketch.bytes(), sketch.sketched());
    let bits = [1, 4.min(sketch.dim())];
    for bits in bits {
        if let Ok(hasher) = sketch.hasher(bits) {
            use_hasher(&hasher);
        }
    }
    for rotation in [Rotation::None, Rotation::Isotropic, Rotation::Itq, Rotation::Refined] {
        if let Ok(hasher) = sketch.hasher_with(2, rotation) {
            use_hasher(&hasher);
        }
    }
}

fn use_hasher(hasher: &Hasher) {
    let dim = hasher.dim();
    let values = data(20, dim);
    let rows = Rows::new(&values, dim).expect("whole rows");
    let codes = hasher.encode(rows).expect("good rows are taken");
    assert_eq!((codes.len(), codes.bits(), codes.hasher()), (20, hasher.bits(), hasher.id()));
    let read = Codes::from_bytes(&codes.to_bytes()).expect("what was written can be read");
    assert!(read == codes);
    if hasher.has_factors() {
        let more = hasher.encode_with_factors(rows).expect("good rows are taken");
        assert!(more.as_bytes() == codes.as_bytes());
        let read = Codes::from_bytes(&more.to_bytes()).expect("what was written can be read");
        assert!(read == more);
    }
}
