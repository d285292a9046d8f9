//! File contents, round trips, and the rejection of damaged or hostile files.
//!
//! The files in `fixtures` were written by version 1. `FROSH_WRITE_FIXTURES=1 cargo test --test files`
//! writes them again; then `KNOWN_ID` and `KNOWN_CODES` must be updated. Do this only for a new version of the
//! format: the existing fixtures must stay readable.

mod fixtures;

use fixtures::*;
use frosh::{Codes, Error, Hasher, Method, Rotation, Rows, Sketch, Sketcher};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const KNOWN_ID: &str = "6ae4ae6c6c7bb33fb7d4b06ef83feb22";
const KNOWN_CODES: [u8; 8] = [0, 7, 5, 0, 4, 6, 6, 7];

#[test]
fn a_loaded_file_writes_the_same_bytes() {
    for (name, bytes, open) in kinds() {
        assert!(open(&bytes).unwrap() == bytes, "{name}");
        assert!(Parts::of(&bytes).build() == bytes, "{name}");
    }
}

#[test]
fn a_loaded_sketcher_resumes_bit_for_bit() {
    for method in METHODS {
        let mut first = sketcher(method);
        let mut second = Sketcher::from_bytes(&first.to_bytes()).unwrap();
        for sketcher in [&mut first, &mut second] {
            sketcher.push(Rows::new(&data(100, DIM), DIM).unwrap()).unwrap();
        }
        assert!(first.to_bytes() == second.to_bytes());
        assert!(first.finish().to_bytes() == second.finish().to_bytes());
    }
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn saving_replaces_the_file_and_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a file.frosh");
    let saved = || std::fs::read(&path).unwrap();
    for method in METHODS {
        let sketcher = sketcher(method);
        sketcher.save(&path).unwrap();
        assert!(saved() == sketcher.to_bytes());
        assert!(Sketcher::load(&path).unwrap().to_bytes() == saved());
    }
    let (sketch, hasher, codes) = (sketcher(Method::Osh).finish(), hasher(), codes());
    for _ in 0..2 {
        sketch.save(&path).unwrap();
        assert!(saved() == sketch.to_bytes() && saved() == Sketch::load(&path).unwrap().to_bytes());
        hasher.save(&path).unwrap();
        assert!(saved() == hasher.to_bytes() && saved() == Hasher::load(&path).unwrap().to_bytes());
        codes.save(&path).unwrap();
        assert!(saved() == codes.to_bytes() && codes == Codes::load(&path).unwrap());
    }
    assert_eq!(in_folder(folder.path()), [path]);
}

#[test]
fn errors_name_a_missing_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere").join("codes.frosh");
    for error in [codes().save(&path).unwrap_err(), Codes::load(&path).unwrap_err()] {
        assert!(error.to_string().starts_with(path.to_str().unwrap()));
        assert!(matches!(error, Error::Io { path: p, .. } if p == path));
    }
    let error = codes().save(folder.path()).unwrap_err();
    // A folder cannot be replaced by a file.
    assert!(matches!(error, Error::File { path: Some(path), .. } if path == folder.path()));
    assert!(in_folder(folder.path()).is_empty());
}

#[test]
fn errors_name_a_damaged_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"no frosh at all").unwrap();
    let error = Hasher::load(file.path()).unwrap_err();
    assert!(error.to_string().starts_with(file.path().to_str().unwrap()), "{error}");
    assert!(matches!(error, Error::File { path: Some(p), .. } if p == file.path()));
}

#[test]
fn files_open_as_safetensors() {
    let wanted = [("sketcher", "waiting"), ("sketch", "sketch"), ("codes", "codes")];
    for (name, tensor) in wanted {
        let mut parts = Parts::of(&kind(name).1);
        assert_eq!(parts.facts["format"], format!("frosh-{name}"));
        assert_eq!(parts.facts["version"], "1");
        assert!(!parts.part(tensor).3.is_empty());
    }
    let mut parts = Parts::of(&kind("hasher").1);
    let first: Vec<u8> = (0..BITS).flat_map(|k| hasher().direction(k)[0].to_le_bytes()).collect();
    assert_eq!(parts.part("projection").2, [DIM, BITS]);
    assert_eq!(parts.part("projection").3[..4 * BITS], first);
}

fn write_fixtures(folder: &Path) {
    sketcher(Method::Frosh).save(folder.join("sketcher.frosh")).unwrap();
    sketcher(Method::Frosh).finish().save(folder.join("sketch.frosh")).unwrap();
    hasher().save(folder.join("hasher.frosh")).unwrap();
    codes().save(folder.join("codes.frosh")).unwrap();
}

#[test]
fn fixtures_of_version_1_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    if std::env::var("FROSH_WRITE_FIXTURES").is_ok_and(|v| v == "1") {
        write_fixtures(&folder);
    }
    let path = |name| folder.join(name);
    let bytes = |name| std::fs::read(folder.join(name)).unwrap();
    let sketcher = Sketcher::load(path("sketcher.frosh")).unwrap();
    assert_eq!((sketcher.rows(), sketcher.sketch().block_rows()), (55, 16));
    assert!(sketcher.to_bytes() == bytes("sketcher.frosh"));
    assert_eq!(sketcher.run_rows(), 0, "a state of a time before runs goes on as one run");
    let sketch = Sketch::load(path("sketch.frosh")).unwrap();
    assert_eq!((sketch.rows(), sketch.dim(), sketch.sketch_rows()), (55, DIM, 6));
    assert_eq!((sketch.seed(), sketch.workers(), sketch.reservoir_rows()), (9, &[2][..], 4));
    assert!(sketch.to_bytes() == bytes("sketch.frosh"));
    let hasher = Hasher::load(path("hasher.frosh")).unwrap();
    assert_eq!((hasher.rows(), hasher.dim(), hasher.bits()), (55, DIM, BITS));
    assert_eq!((hasher.rotation(), hasher.rank()), (Rotation::Random, BITS));
    assert_eq!(hasher.id().to_string(), KNOWN_ID);
    assert!(hasher.to_bytes() == bytes("hasher.frosh"));
    let codes = Codes::load(path("codes.frosh")).unwrap();
    assert_eq!(codes.as_bytes(), KNOWN_CODES);
    assert!(codes.to_bytes() == bytes("codes.frosh"));
    let values = data(8, DIM);
    assert_eq!(hasher.encode(Rows::new(&values, DIM).unwrap()).unwrap(), codes);
    for (i, row) in values.chunks(DIM).enumerate() {
        for k in 0..BITS {
            let terms = row.iter().zip(hasher.mean()).zip(hasher.direction(k));
            let exact: f64 = terms.map(|((x, m), w)| (f64::from(*x) - m) * f64::from(*w)).sum();
            assert!(exact.abs() > 1e-2 && codes.bit(i, k) == (exact > 0.0), "{i} {k} {exact}");
        }
    }
}

#[test]
fn a_truncated_file_is_refused() {
    for (name, bytes, open) in kinds() {
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).is_err(), "{name} cut to {length}");
        }
        assert!(open(&[&bytes[..], &[0]].concat()).is_err(), "{name} with a byte more");
    }
}

#[test]
fn a_flipped_byte_is_refused() {
    for (name, mut bytes, open) in kinds() {
        for at in 0..bytes.len() {
            for pattern in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                bytes[at] ^= pattern;
                assert!(open(&bytes).is_err(), "{name}, byte {at} xor {pattern}");
                bytes[at] ^= pattern;
            }
        }
    }
}

#[test]
fn garbage_is_refused() {
    let header = |length: u64| [&length.to_le_bytes()[..], b"{}      ", &[0; 64]].concat();
    let garbage = |seed: u8| (0..999u32).map(|i| ((i * i) >> 3) as u8 ^ seed).collect();
    let lengths = [0, 2, 8, 72, 73, 1 << 20, 1 << 63, u64::MAX - 8, u64::MAX];
    let files = lengths.map(header).into_iter().chain((0..=255).map(garbage));
    for bytes in files {
        assert!(kinds().iter().all(|(_, _, open)| open(&bytes).is_err()));
    }
    assert_nothing_huge_was_allocated();
}

/// The error message for a changed example file.
#[track_caller]
fn refusal(name: &str, change: impl FnOnce(Parts) -> Parts) -> String {
    let (_, bytes, open) = kind(name);
    let refused = open(&change(Parts::of(&bytes)).build()).unwrap_err().to_string();
    assert_nothing_huge_was_allocated();
    refused
}

#[test]
fn a_later_version_asks_for_a_newer_frosh() {
    for name in ["sketcher", "sketch", "hasher", "codes"] {
        let why = refusal(name, |p| p.fact("version", 5));
        assert!(why.contains("version 5") && why.contains("newer frosh"), "{why}");
        for version in ["0", "-1", "", "x", "4294967296"] {
            refusal(name, |p| p.fact("version", version));
        }
    }
}

#[test]
fn a_sample_of_bytes_has_its_shifts() {
    let name = "sketch-bytes";
    let (_, bytes, _) = kind(name);
    let parts = Parts::of(&bytes);
    assert_eq!((&*parts.facts["version"], &*parts.facts["reservoir_type"]), ("4", "i8"));
    // Four rows of five values, and a shift for each row.
    let shape = |name: &str| parts.tensors.iter().find(|t| t.0 == name).unwrap().2.clone();
    assert_eq!((shape("reservoir"), shape("reservoir_shifts")), (vec![4, DIM], vec![4]));
    refusal(name, |p| p.fact("reservoir_type", "u4"));
    refusal(name, |p| p.tensor("reservoir_shifts", &[3], &[0; 3]));
    refusal(name, |p| p.tensor("reservoir", &[4, DIM - 1], &[0; 4 * (DIM - 1)]));
    // Any shift is a power of two.
    let open = |p: Parts| Sketch::from_bytes(&p.build()).unwrap().hasher(1).unwrap();
    open(Parts::of(&bytes).poke("reservoir_shifts", &[255; 4]));
    // Halves under the name of bytes, and the other way round.
    refusal("sketch", |mut p| {
        p.facts.insert("reservoir_type".into(), "i8".into());
        p
    });
    refusal(name, |mut p| {
        p.facts.remove("reservoir_type");
        p
    });
}

#[test]
fn impossible_half_lives_weights_and_clocks_are_refused() {
    for name in ["sketcher", "sketch"] {
        let with = |changed: &str, value: &str| {
            let (_, bytes, open) = kind(name);
            let mut parts = Parts::of(&bytes);
            for (fact, valid) in [("half_life", "10"), ("clock", "5"), ("weight", "3.5")] {
                let value = if fact == changed { value } else { valid };
                parts.facts.insert(fact.into(), value.into());
            }
            open(&parts.build())
        };
        with("", "").unwrap();
        for (fact, values) in [
            ("half_life", &["0", "-1", "NaN", "inf", "1.5", "18446744073709551615", ""][..]),
            ("clock", &["-1", "NaN", "18446744073709551615"]),
            ("weight", &["NaN", "inf", "-inf", "-1", "0", "0.5", "1e30", "x"]),
        ] {
            for value in values {
                let error = with(fact, value).unwrap_err();
                assert!(matches!(error, Error::File { .. }), "{name}, {fact} = {value}: {error}");
            }
        }
    }
}

#[test]
fn another_kind_of_file_is_recognised() {
    let all = kinds();
    for (name, bytes, _) in &all {
        let name = name.split('-').next().unwrap();
        for (other, _, open) in all.iter().filter(|o| o.0.split('-').next() != Some(name)) {
            let why = open(bytes).unwrap_err().to_string();
            let other = other.split('-').next().unwrap();
            assert!(why.contains(&format!("\"frosh-{name}\"")), "{why}");
            assert!(why.contains(&format!("\"frosh-{other}\"")), "{why}");
        }
    }
}

#[test]
fn a_number_that_is_not_finite_is_refused_by_the_name_of_its_tensor() {
    for (kind, bytes, open) in kinds() {
        for (name, dtype, _, data) in Parts::of(&bytes).tensors {
            let bad: &[u8] = match &dtype[..] {
                "F16" => &[0, 0x7e],
                "F32" => &[0, 0, 0x80, 0xff],
                "F64" => &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
                _ => continue,
            };
            if !data.is_empty() {
                let file = Parts::of(&bytes).poke(&name, bad).build();
                let why = open(&file).unwrap_err().to_string();
                assert!(why.contains(&format!("{name:?}")), "{kind} {why}");
            }
        }
    }
}

#[test]
fn a_part_that_is_missing_or_of_another_type_or_shape_is_refused() {
    for (name, bytes, open) in kinds() {
        let parts = Parts::of(&bytes);
        for fact in parts.facts.keys() {
            let mut parts = parts.clone();
            parts.facts.remove(fact);
            // Without it, the stream is one run: that is wrong only if there are complete ones.
            let optional = fact == "run_rows" && name != "sketcher-runs";
            assert!(optional || open(&parts.build()).is_err(), "{name} without {fact}");
        }
        for (i, (tensor, dtype, _, _)) in parts.tensors.iter().enumerate() {
            let mut files = [(); 4].map(|()| parts.clone());
            files[0].tensors.remove(i);
            files[1].tensors[i].1 = dtype.replace('F', "BF").replace(['U', 'I'], "F");
            files[2].tensors[i].2.push(1);
            files[3].tensors[i].2.insert(0, 1);
            for file in files {
                assert!(open(&file.build()).is_err(), "{name}, {tensor}");
            }
        }
    }
}

#[test]
fn facts_that_no_writer_would_write_are_refused() {
    let huge =
        ["0", "-1", "1.5", "1152921504606846976", "18446744073709551615", "99999999999999999999"];
    let same = |name: &str, fact: &str| {
        for value in huge {
            refusal(name, |p| p.fact(fact, value));
        }
    };
    for name in ["sketcher", "sketcher-sparse", "sketcher-osh", "sketch", "hasher"] {
        same(name, "dim");
    }
    same("sketcher-runs", "run_rows");
    for rows in [1, 15, 17, 54, 55, 56] {
        refusal("sketcher-runs", |p| p.fact("run_rows", rows));
    }
    for rows in [0, 6, 16, 32, 48, 71, 1u64 << 60] {
        refusal("sketcher-runs", |p| p.fact("rows", rows));
    }
    for dim in [0, 4, 1 << 24, 1 << 60, usize::MAX] {
        refusal("sketcher", |p| p.emptied(dim));
        refusal("sketch", |p| p.emptied(dim));
    }
    for name in ["sketcher", "sketcher-osh", "sketch"] {
        same(name, "sketch_rows");
        for rows in [7, 2, 1u64 << 40] {
            refusal(name, |p| p.fact("sketch_rows", rows));
        }
        refusal(name, |p| p.tensor("lengths", &[1], &(-1.0f64).to_le_bytes()));
        refusal(name, |p| p.fact("reservoir_rows", 3));
        refusal(name, |p| p.fact("reservoir_rows", usize::MAX));
        refusal(name, |p| p.poke("reservoir_keys", &[255; 8]));
        refusal(name, |p| p.fact("removed", "-1"));
        refusal(name, |p| p.fact("inserted", "inf"));
        refusal(name, |p| p.fact("method", "best"));
        refusal(name, |p| p.fact("metric", ""));
        refusal(name, |p| p.fact("rows", u64::MAX));
    }
    for fact in ["config_sketch_rows", "block_rows", "sub_blocks", "rows_in_block", "rows"] {
        same("sketcher", fact);
    }
    for (fact, value) in
        [("block_rows", 3), ("block_rows", 4), ("sub_blocks", 4), ("trial", 1u64 << 40)]
    {
        refusal("sketcher", |p| p.fact(fact, value));
    }
    for (fact, value) in [("rows", 56), ("rows_before_block", 47), ("rows_in_block", 3)] {
        refusal("sketcher", |p| p.fact(fact, value));
    }
    refusal("sketcher", |p| {
        let p = p.fact("rows_before_block", u64::MAX - 7).fact("rows", u64::MAX);
        p.fact("rows_in_block", 4)
    });
    refusal("sketcher", |p| p.fact("rows", 80).tensor("waiting", &[28, DIM], &[0; 28 * DIM * 4]));
    refusal("sketcher", |p| p.poke("tally", &17i64.to_le_bytes()));
    refusal("sketcher", |p| p.poke("tally", &i64::MIN.to_le_bytes()));
    same("hasher", "bits");
    same("codes", "bits");
    refusal("hasher", |p| p.fact("bits", 1usize << 50));
    refusal("hasher", |p| p.fact("id", "0".repeat(32)));
    refusal("hasher", |p| p.fact("rotation", "half"));
    refusal("hasher", |p| p.fact("exact_centre", "maybe"));
    refusal("codes", |p| p.fact("bits", 2));
    refusal("codes", |p| p.poke("codes", &[0xff]));
    refusal("codes", |p| p.fact("hasher", "not hexadecimal"));
}

#[test]
fn codes_of_no_rows_and_any_number_of_bits_are_refused_or_usable() {
    for bits in [1, 8, 9, 1 << 50, usize::MAX - 7, usize::MAX] {
        let parts = Parts::of(&kind("codes").1).fact("bits", bits);
        let _ = open_codes(&parts.tensor("codes", &[0, bits.div_ceil(8)], &[]).build());
        assert_nothing_huge_was_allocated();
    }
}

const EVIL: [&str; 9] =
    ["0", "1", "2", "7", "16", "lsh", "1099511627776", "18446744073709551615", "nan"];

/// Changes one part at random; the meaning of the numbers depends on the part.
fn mutate(parts: &mut Parts, (what, which, at, value): (u8, usize, usize, u64)) {
    if what == 0 {
        let name = parts.facts.keys().nth(which % parts.facts.len()).unwrap().clone();
        let old = parts.facts[&name].clone();
        let near = old.parse().map(|n: u64| n.wrapping_add(value % 5).wrapping_sub(2).to_string());
        let evil = EVIL[at % EVIL.len()].to_owned();
        parts.facts.insert(name, if value % 2 == 0 { evil } else { near.unwrap_or(old) });
        return;
    }
    let which = which % parts.tensors.len();
    let (_, _, shape, bytes) = &mut parts.tensors[which];
    let row = bytes.len() / shape[0].max(1);
    match what {
        1 if shape[0] > 0 => {
            shape[0] -= 1;
            bytes.truncate(bytes.len() - row);
        }
        2 => {
            shape[0] += 1;
            bytes.extend(vec![value as u8 & 0x3f; row]);
        }
        _ if bytes.len() >= 8 => {
            let at = at % (bytes.len() / 8) * 8;
            let largest = [f32::MAX.to_le_bytes(), f32::MAX.to_le_bytes()].concat();
            let with = [value.to_le_bytes(), largest.try_into().unwrap(), 1e300f64.to_le_bytes()];
            bytes[at..at + 8].copy_from_slice(&with[which % 3]);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_hostile_file_is_refused_or_usable(
        which in 0usize..7,
        changes in prop::collection::vec((0u8..6, any::<usize>(), any::<usize>(), any::<u64>()), 1..4),
    ) {
        let (_, bytes, open) = kinds().swap_remove(which);
        let mut parts = Parts::of(&bytes);
        changes.into_iter().for_each(|change| mutate(&mut parts, change));
        let _ = open(&parts.build());
        assert_nothing_huge_was_allocated();
    }
}

#[test]
fn codes_with_factors_round_trip() {
    let rows = data(8, DIM);
    let codes = hasher().encode_with_factors(Rows::new(&rows, DIM).unwrap()).unwrap();
    assert!(codes.has_factors() && codes.stored_bytes_per_row() == codes.bytes_per_row() + 1);
    let back = Codes::from_bytes(&codes.to_bytes()).unwrap();
    assert!(back == codes && back.to_bytes() == codes.to_bytes());
    // Models of releases before there were factors can be read, and have none.
    let old = Hasher::load(format!("{}/tests/fixtures/hasher.frosh", env!("CARGO_MANIFEST_DIR")));
    assert!(!old.unwrap().has_factors() && hasher().has_factors());
}

/// Models of earlier releases, with one byte for each of the two factors, still encode and rank in the same way.
#[test]
fn models_with_two_bytes_of_factors_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let hasher = Hasher::load(folder.join("two-byte-hasher.frosh")).unwrap();
    let codes = Codes::load(folder.join("two-byte-codes.frosh")).unwrap();
    assert_eq!((codes.len(), codes.stored_bytes_per_row()), (8, 3));
    for (name, bytes) in [("hasher", hasher.to_bytes()), ("codes", codes.to_bytes())] {
        assert!(bytes == std::fs::read(folder.join(format!("two-byte-{name}.frosh"))).unwrap());
    }
    let value = |i: usize, j: usize| {
        let exact = ((i * 31 + j * 17) % 101) as f64 / (1 + j) as f64;
        ((exact * 1e4).round() / 1e4) as f32
    };
    let rows: Vec<f32> = (0..8 * 6).map(|at| value(at / 6, at % 6)).collect();
    let made = hasher.encode_with_factors(Rows::new(&rows, 6).unwrap()).unwrap();
    assert!(made == codes);
    let query = [50.0f32, 20.0, 10.0, 5.0, 3.0, 1.0];
    let asked = hasher.queries(Rows::new(&query, 6).unwrap()).unwrap();
    let found = codes.nearest(&asked, 8).unwrap().remove(0);
    let ids: Vec<u64> = found.iter().map(|f| f.id).collect();
    assert_eq!(ids, [5, 1, 2, 4, 7, 6, 3, 0]);
    assert!(
        (found[0].distance - 459.923_46).abs() < 0.01
            && (found[7].distance - 3_267.763).abs() < 0.1
    );
}
