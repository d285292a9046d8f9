//! The files in tests/fixtures/hdf5 were written by h5py, with the script make_hdf5.py there.

use super::{names, open, sink};
use crate::batch::{Kind, Values};
use crate::error::{Fault, Hint, Reason};
use crate::source::{Sink, Source};
use half::f16;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const FILES: [&str; 10] = [
    "ann",
    "chunked",
    "growing",
    "gzip",
    "indexes",
    "integers",
    "latest",
    "one",
    "refused",
    "refused_latest",
];

fn fixture(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hdf5");
    Path::new(folder).join(name).with_extension("h5")
}

/// The values as floats of double precision, which holds all that tests use.
fn floats(values: &Values) -> Vec<f64> {
    match values {
        Values::F16(v) => v.iter().map(|&x| x.into()).collect(),
        Values::F32(v) => v.iter().map(|&x| x.into()).collect(),
        Values::F64(v) => v.clone(),
        Values::U8(v) => v.iter().map(|&x| x.into()).collect(),
        Values::I8(v) => v.iter().map(|&x| x.into()).collect(),
    }
}

/// Reads all that is left, in batches of at most `limit` rows.
fn rest(source: &mut impl Source, limit: usize) -> Result<Vec<f64>, Fault> {
    let shape = source.shape();
    let mut values = Values::empty(shape.kind);
    let mut all = Vec::new();
    loop {
        let got = source.read(limit, &mut values)?;
        assert_eq!(values.kind(), shape.kind);
        assert_eq!(values.len(), got * shape.dim);
        if got == 0 {
            return Ok(all);
        }
        assert!(got <= limit);
        all.extend(floats(&values));
    }
}

/// What the script puts into a data set whose stored type is `u`, `i` or `f`.
fn expected(stored: char, rows: usize, dim: usize) -> Vec<f64> {
    let value = |r: usize, c: usize| match stored {
        'f' => r as f64 + c as f64 / 8.0,
        'i' => ((r * 7 + c) % 100) as f64 - 20.0,
        _ => ((r * 7 + c) % 200) as f64,
    };
    (0..rows).flat_map(|r| (0..dim).map(move |c| value(r, c))).collect()
}

fn message(result: Result<impl Sized, Fault>) -> String {
    match result {
        Ok(_) => "fine".into(),
        Err(fault) => fault.at(Path::new("x")).to_string(),
    }
}

#[test]
fn files_written_by_h5py_are_read() {
    use Kind::{F16, F32, F64, I8, U8};
    let cases = [
        ("ann", "train", 20, 5, F32, 'f'),
        ("ann", "/test", 4, 5, F32, 'f'),
        ("ann", "neighbors", 4, 3, F64, 'i'),
        ("gzip", "train", 43, 5, F64, 'f'),
        ("chunked", "wide", 30, 5, F16, 'f'),
        ("latest", "train", 20, 5, F32, 'f'),
        ("latest", "group/inner/deep", 3, 2, F64, 'f'),
        ("indexes", "single", 20, 5, F32, 'f'),
        ("indexes", "single_gzip", 20, 5, F32, 'f'),
        ("indexes", "fixed", 20, 5, F32, 'f'),
        ("indexes", "fixed_gzip", 20, 5, F32, 'f'),
        ("indexes", "implicit", 20, 5, F32, 'f'),
        ("growing", "rows", 20, 5, F32, 'f'),
        ("growing", "columns", 20, 5, F32, 'f'),
        ("growing", "rows_gzip", 14, 2, F32, 'f'),
        ("growing", "long", 250, 1, U8, 'u'),
        ("integers", "i16_big", 12, 4, F32, 'i'),
        ("integers", "u16", 12, 4, F32, 'u'),
        ("integers", "i32", 12, 4, F64, 'i'),
        ("integers", "u32_big", 12, 4, F64, 'u'),
        ("integers", "f32_big", 12, 4, F32, 'f'),
        ("integers", "u8", 12, 4, U8, 'u'),
        ("integers", "i8", 12, 4, I8, 'i'),
        ("one", "group/vectors", 6, 4, F32, 'f'),
        ("latest", "compact", 3, 4, F32, 'f'),
    ];
    for (file, name, rows, dim, kind, stored) in cases {
        let all = expected(stored, rows, dim);
        let start = || open(&fixture(file), Some(name)).map_err(|f| f.at(Path::new(file))).unwrap();
        let shape = start().shape();
        assert_eq!((shape.rows, shape.dim, shape.kind), (Some(rows as u64), dim, kind), "{name}");
        for limit in [1, 3, 7, 100_000] {
            assert_eq!(rest(&mut start(), limit).unwrap(), all, "{file}, {name}, {limit}");
        }
        for skipped in [0, 1, rows / 2, rows, rows + 9] {
            let mut source = start();
            source.skip(skipped as u64).unwrap();
            let left = all.get(skipped * dim..).unwrap_or_default();
            assert_eq!(rest(&mut source, 4).unwrap(), left, "{file}, {name}, after {skipped}");
        }
        // On from the middle of a chunk to another.
        let mut source = start();
        let mut values = Values::empty(kind);
        source.read(2, &mut values).unwrap();
        source.skip(1).unwrap();
        assert_eq!(rest(&mut source, 5).unwrap(), all[3 * dim..], "{file}, {name}");
    }
}

#[test]
fn a_long_array_of_chunks_has_pages() {
    let packed = File::open(fixture("paged").with_extension("h5.gz")).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut file).unwrap();
    let mut source = open(file.path(), None).unwrap();
    source.skip(5).unwrap();
    assert_eq!(rest(&mut source, 700).unwrap(), expected('u', 1030, 1)[5..]);
}

#[test]
fn the_data_set_is_found_by_name_or_by_default() {
    // `train`, the only readable one, none, too many.
    assert_eq!(open(&fixture("ann"), None).unwrap().shape().rows, Some(20));
    assert_eq!(open(&fixture("one"), None).unwrap().shape().rows, Some(6));
    let why = message(open(&fixture("integers"), None));
    assert!(why.contains("u16 (12 x 4, u16), "), "{why}");
    for (file, dataset) in [("integers", None), ("ann", Some("group/nothing"))] {
        let error = open(&fixture(file), dataset).err().unwrap().at(Path::new("f"));
        assert_eq!(error.hint(), Some(Hint::ChooseDataset));
    }
    let why = message(open(&fixture("ann"), Some("group/nothing")));
    assert!(why.contains("no data set `group/nothing`"), "{why}");
    assert!(why.contains("distances (4 x 3, f32), neighbors (4 x 3, i32), test"), "{why}");
    let why = message(open(&fixture("latest"), Some("group")));
    assert!(why.contains("no data set `group`"), "{why}");

    let found = names(&fixture("one")).unwrap();
    let expected = [("group/vectors", vec![6, 4], "f32"), ("labels", vec![6], "i64")];
    assert_eq!(found, expected.map(|(name, shape, kind)| (name.into(), shape, kind.into())));
    let found: Vec<_> = names(&fixture("latest")).unwrap().into_iter().map(|f| f.0).collect();
    assert_eq!(found, ["compact", "group/inner/deep", "train"]);
}

#[test]
fn unsupported_features_are_refused_by_name() {
    let refused = fixture("refused");
    let cases = [
        ("i64", "i64 (3 x 2, i64): expected f16"),
        ("flat", "(2, f32): expected two dimensions"),
        ("cube", "(2 x 2 x 2, f32): expected two dimensions"),
        ("scalar", "(one value, f64): expected two dimensions"),
        ("text", "(1 x 2, string): expected f16"),
        ("flags", "(1 x 2, enum): expected f16"),
        ("pairs", "(2 x 2, compound): expected f16"),
        ("unwritten", "row 0: was never written"),
        ("soft", "no data set `soft`"),
    ];
    for (name, why) in cases {
        let found = message(open(&refused, Some(name)));
        assert!(found.contains(why), "{name}: {found}");
    }
    let refused = fixture("refused_latest");
    let cases = [
        ("lzf", "uses the compression filter 32000 LZF, which is not supported; rewrite"),
        ("both", "B-tree version 2"),
        ("named_type", "(9 x 2, a named type): expected f16"),
        ("dense/3", "uses a group with many members"),
    ];
    for (name, why) in cases {
        let found = message(open(&refused, Some(name)));
        assert!(found.contains(why), "{name}: {found}");
    }
    let mut half = open(&refused, Some("half_written")).unwrap();
    let mut values = Values::empty(Kind::F32);
    assert_eq!(half.read(3, &mut values).unwrap(), 3);
    assert!(message(half.read(3, &mut values)).contains("row 3: was never written"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for content in ["", "no HDF5 file", &"x".repeat(5000)] {
        std::fs::write(&path, content).unwrap();
        assert!(message(open(&path, None)).contains("is not an HDF5 file"));
    }
}

/// Writes rows in two parts and returns the path; the folder must live as long.
fn written(folder: &Path, name: &str, parts: &[Values], kind: Kind, dim: usize) -> PathBuf {
    let path = folder.join(format!("{}.h5", kind.name()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let mut sink = sink(file, kind, dim, name).unwrap();
    for part in parts {
        sink.write(part).unwrap();
    }
    // Not a whole file yet.
    assert!(open(&path, Some(name)).is_err());
    sink.finish().unwrap();
    path
}

/// Values of a kind: 0, 1, 2, ...
fn count(kind: Kind, from: u8, to: u8) -> Values {
    match kind {
        Kind::F16 => Values::F16((from..to).map(|n| f16::from_f32(n.into())).collect()),
        Kind::F32 => Values::F32((from..to).map(f32::from).collect()),
        Kind::F64 => Values::F64((from..to).map(f64::from).collect()),
        Kind::U8 => Values::U8((from..to).collect()),
        Kind::I8 => Values::I8((from..to).map(|n| n as i8).collect()),
    }
}

#[test]
fn written_rows_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for kind in Kind::ALL {
        for (name, rows) in [("train", 20), ("some/group/näme", 20), ("train", 0)] {
            let parts = match rows {
                0 => vec![],
                _ => vec![count(kind, 0, 35), count(kind, 35, 100)],
            };
            let path = written(folder.path(), name, &parts, kind, 5);
            let bytes = std::fs::read(&path).unwrap();
            let mut source = open(&path, Some(name)).unwrap();
            let shape = source.shape();
            assert_eq!((shape.rows, shape.dim, shape.kind), (Some(rows), 5, kind));
            let all: Vec<_> = (0..rows * 5).map(|n| n as f64).collect();
            assert_eq!(rest(&mut source, 6).unwrap(), all);
            let found = names(&path).unwrap();
            assert_eq!(found, [(name.to_string(), vec![rows, 5], kind.name().to_string())]);
            // The same again, byte for byte.
            written(folder.path(), name, &parts, kind, 5);
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
    for bad in ["", "/", "a/./b", "a\0b"] {
        let file = tempfile::tempfile().unwrap();
        assert!(message(sink(file, Kind::F32, 3, bad)).contains("cannot be called"), "{bad:?}");
    }
}

/// Whatever the file holds, reading it ends with rows or a fault.
fn try_all(path: &Path) {
    let mut all: Vec<_> = names(path).unwrap_or_default().into_iter().map(|f| Some(f.0)).collect();
    all.push(None);
    for name in all {
        if let Ok(mut source) = open(path, name.as_deref()) {
            source.skip(1).unwrap();
            let _ = rest(&mut source, 1000);
        }
    }
}

#[test]
fn cut_files_are_refused_at_every_length() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(folder.path(), "a/b", &[count(Kind::F32, 0, 20)], Kind::F32, 5);
    let paths = ["ann", "latest", "gzip"].map(fixture);
    for from in paths.iter().chain([&ours]) {
        let copy = folder.path().join("torn.h5");
        std::fs::copy(from, &copy).unwrap();
        let file = File::options().write(true).open(&copy).unwrap();
        let whole = message(open(&copy, None).and_then(|mut source| rest(&mut source, 9)));
        assert_eq!(whole, "fine");
        for len in (0..file.metadata().unwrap().len()).rev() {
            file.set_len(len).unwrap();
            let why = message(open(&copy, None));
            assert!(
                why.contains("cut short") || why.contains("is not an HDF5 file"),
                "{len}: {why}"
            );
            if len % 16 == 0 {
                try_all(&copy);
            }
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(folder.path(), "a/b", &[count(Kind::F32, 0, 20)], Kind::F32, 5);
    for from in FILES.map(fixture).iter().chain([&ours]) {
        let bytes = std::fs::read(from).unwrap();
        let copy = folder.path().join("changed.h5");
        std::fs::copy(from, &copy).unwrap();
        let mut file = File::options().write(true).open(&copy).unwrap();
        // Every byte of a few files; of the others, which are much alike, some.
        let name = from.file_stem().and_then(|name| name.to_str());
        let step = if matches!(name, Some("ann" | "latest" | "f32")) { 1 } else { 9 };
        for (at, &byte) in bytes.iter().enumerate().take(2000).step_by(step) {
            for change in [0x01, 0xff] {
                file.seek(SeekFrom::Start(at as u64)).unwrap();
                file.write_all(&[byte ^ change]).unwrap();
                try_all(&copy);
            }
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
        }
    }
}

/// A file whose root is a data set of 2 x 3 bytes with this layout message, and with these bytes at address 300.
fn rooted(layout: &[u8], data: &[u8]) -> tempfile::NamedTempFile {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let message = |kind: u8, body: &[u8]| {
        let padded = body.len().next_multiple_of(8);
        let mut out = vec![kind, 0, padded as u8, 0, 0, 0, 0, 0];
        out.extend(body);
        out.resize(8 + padded, 0);
        out
    };
    let mut bytes = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0".to_vec();
    bytes.extend(words(&[0, u64::MAX, 400, u64::MAX, 0, 96, 0, 0, 0]));
    let messages = [
        message(1, &[&[1, 2, 0, 0, 0, 0, 0, 0][..], &words(&[2, 3])].concat()),
        message(3, &[0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]),
        message(8, layout),
    ]
    .concat();
    bytes.extend([1, 0, 3, 0, 1, 0, 0, 0, messages.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(messages);
    bytes.resize(300, 0);
    bytes.extend(data);
    bytes.resize(400, 0);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn older_layouts_are_read() {
    let values = [1, 2, 3, 4, 5, 6];
    let expected: Vec<f64> = values.iter().map(|&x| x.into()).collect();
    let extents: Vec<u8> = [2u32, 3].iter().flat_map(|x| x.to_le_bytes()).collect();
    let address = 300u64.to_le_bytes();
    for version in [1, 2] {
        let contiguous = [&[version, 2, 1, 0, 0, 0, 0, 0][..], &address, &extents].concat();
        let compact =
            [&[version, 2, 0, 0, 0, 0, 0, 0][..], &extents, &6u32.to_le_bytes(), &values].concat();
        // The key of the only chunk (size, filters left out, place), its address, and the key after it.
        let mut tree = b"TREE\x01\0\x01\0".to_vec();
        tree.extend([0xFF; 16]);
        tree.extend([6, 0, 0, 0].into_iter().chain([0; 28]));
        tree.extend(380u64.to_le_bytes());
        tree.resize(80, 0);
        tree.extend(values);
        let chunked =
            [&[version, 3, 2, 0, 0, 0, 0, 0][..], &address, &extents, &1u32.to_le_bytes()].concat();
        for (layout, data) in [(contiguous, &values[..]), (compact, &[]), (chunked, &tree)] {
            let file = rooted(&layout, data);
            let mut source = open(file.path(), None).unwrap();
            assert_eq!(rest(&mut source, 9).unwrap(), expected);
        }
        let file = rooted(
            &[version, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[],
        );
        let Err(Fault::File(Reason { text: why, .. })) = open(file.path(), None) else {
            panic!("it was read")
        };
        assert!(why.contains("class 3 of the older data set layouts"), "{why}");
        // Chunks are read as wide as they are, so they may not be as wide as they like.
        let wide: Vec<u8> = [1u32, 1 << 25, 1].iter().flat_map(|x| x.to_le_bytes()).collect();
        let file = rooted(&[&[version, 3, 2, 0, 0, 0, 0, 0][..], &address, &wide].concat(), &[]);
        let Err(Fault::File(Reason { text: why, .. })) = open(file.path(), None) else {
            panic!("it was read")
        };
        assert!(why.contains("its chunks are wider than any row"), "{why}");
    }
}
