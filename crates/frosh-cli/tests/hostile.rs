//! Files that claim to be huge, or that stand for far more than they hold: they end with an error and its message in
//! bounded memory. The program may have a gigabyte of addresses; one that asks for more would be ended by the system.
#![cfg(target_os = "linux")]

mod common;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with a gigabyte of addresses.
fn confined(folder: &Path, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_frosh");
    let script = format!("ulimit -v 1048576 && exec {program} {arguments} --threads 1");
    Command::new("sh").current_dir(folder).args(["-c", &script]).output().unwrap()
}

/// The program must refuse the file, and say why.
fn refuses(folder: &Path, name: &str, options: &str, why: &str) {
    for job in [format!("inspect {name} {options}"), format!("convert {name} out.npy {options}")] {
        let output = confined(folder, &job);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "frosh {job}: {said}");
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "frosh {job}: {said}");
        assert!(said.contains(name) && said.contains(why), "frosh {job}: {said}");
    }
}

/// A file that is as long as it says, but takes no room on the disk: `start`, a gap, `end`.
fn sparse(path: &Path, start: &[u8], length: u64, end: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(start, 0).unwrap();
    file.write_all_at(end, length - end.len() as u64).unwrap();
}

fn gzip(path: &Path, pieces: impl Iterator<Item = Vec<u8>>) {
    let file = std::fs::File::create(path).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    pieces.for_each(|piece| packed.write_all(&piece).unwrap());
    packed.finish().unwrap();
}

/// Seven bits in each byte, the lowest first.
fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A number as Thrift's compact protocol has it.
fn int(number: u64) -> Vec<u8> {
    varint(number << 1)
}

/// A run of equal levels or indices below 2.
fn run(value: u8, times: u64) -> Vec<u8> {
    [varint(times << 1), vec![value]].concat()
}

/// A Parquet file with one row group and one column `v`, a list of f32: rows of zeros of these lengths, so many times
/// each. Levels and values are runs, so that it has a few hundred bytes whatever they are.
fn parquet(rows: &[(u64, u64)], dictionary_claims: u64) -> Vec<u8> {
    let count: u64 = rows.iter().map(|row| row.1).sum();
    let values: u64 = rows.iter().map(|row| row.0 * row.1).sum();
    let mut repetition = Vec::new();
    for &(length, times) in rows {
        match length {
            1 => repetition.extend(run(0, times)),
            _ => {
                (0..times).for_each(|_| repetition.extend([run(0, 1), run(1, length - 1)].concat()))
            }
        }
    }
    let definition = run(1, values);
    let sized = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    // Indices into the dictionary have one bit each.
    let content = [sized(&repetition), sized(&definition), vec![1], run(0, values)].concat();
    let length = |bytes: &[u8]| int(bytes.len() as u64);
    let zero = 0f32.to_le_bytes();
    // Headers of pages: 1 the kind, 2 and 3 the size, 5 or 7 what only this kind has.
    let head = |kind: u64, size: Vec<u8>| {
        [vec![0x15], int(kind), vec![0x15], size.clone(), vec![0x15], size].concat()
    };
    let dictionary = [
        head(2, length(&zero)),
        vec![0x4C, 0x15],
        int(dictionary_claims),
        vec![0x15, 0, 0, 0],
        zero.to_vec(),
    ];
    let dictionary = dictionary.concat();
    let data = [head(0, length(&content)), vec![0x2C, 0x15], int(values)];
    // Values by the dictionary (8), levels as runs (3).
    let data = [data.concat(), vec![0x15, 16, 0x15, 6, 0x15, 6, 0, 0], content].concat();
    let group = |name: &str, repetition: u8, more: &[u8]| {
        [&[0x35, repetition, 0x18, name.len() as u8], name.as_bytes(), &[0x15, 2], more, &[0]]
            .concat()
    };
    let schema = [
        group("schema", 0, &[]),
        group("v", 0, &[0x15, 6]),
        group("list", 4, &[]),
        [&[0x15, 8, 0x25, 0, 0x18, 4][..], b"item", &[0]].concat(),
    ];
    let chunk_bytes = int((dictionary.len() + data.len()) as u64);
    let path: Vec<u8> = ["v", "list", "item"]
        .iter()
        .flat_map(|part| [&[part.len() as u8], part.as_bytes()].concat())
        .collect();
    let column = [
        vec![0x15, 8, 0x19, 0x25, 0, 16, 0x19, 0x38],
        path,
        vec![0x15, 0, 0x16],
        int(values),
        vec![0x16],
        chunk_bytes.clone(),
        vec![0x16],
        chunk_bytes.clone(),
        vec![0x26],
        int(4 + dictionary.len() as u64),
        vec![0x26],
        int(4),
        vec![0],
    ];
    let metadata = [
        vec![0x15, 2, 0x19, 0x4C],
        schema.concat(),
        vec![0x16],
        int(count),
        vec![0x19, 0x1C, 0x19, 0x1C, 0x26],
        int(4),
        vec![0x1C],
        column.concat(),
        vec![0, 0x16],
        chunk_bytes,
        vec![0x16],
        int(count),
        vec![0, 0],
    ]
    .concat();
    let length = (metadata.len() as u32).to_le_bytes();
    [b"PAR1", &dictionary[..], &data, &metadata, &length, b"PAR1"].concat()
}

#[test]
fn parquet_rows_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // First, that this is a Parquet file at all.
    std::fs::write(at("good.parquet"), parquet(&[(5, 100)], 1)).unwrap();
    let output = confined(dir.path(), "inspect good.parquet --json");
    let said = String::from_utf8_lossy(&output.stderr);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!((facts["rows"].as_u64(), facts["dim"].as_u64()), (Some(100), Some(5)));
    assert_eq!(facts["largest_value"].as_f64(), Some(0.0));

    std::fs::write(at("row.parquet"), parquet(&[(400_000_000, 1)], 1)).unwrap();
    assert!(at("row.parquet").metadata().unwrap().len() < 605);
    refuses(dir.path(), "row.parquet", "", "a row of at least 400000000 values");
    // Rows of 16 MB, at first, of which only few fit into memory together: their mean says otherwise.
    std::fs::write(at("mean.parquet"), parquet(&[(1 << 22, 100), (1, 1 << 30)], 1)).unwrap();
    let output = confined(dir.path(), "inspect mean.parquet --json");
    let said = String::from_utf8_lossy(&output.stderr);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(facts["dim"].as_u64(), Some(1 << 22));
    std::fs::write(at("few.parquet"), parquet(&[(1 << 22, 5), (1, 1 << 30)], 1)).unwrap();
    let output = confined(dir.path(), "convert few.parquet out.npy");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("few.parquet, row 5: has 1 values, expected 4194304"), "{said}");

    std::fs::write(at("dictionary.parquet"), parquet(&[(5, 100)], 1 << 30)).unwrap();
    refuses(dir.path(), "dictionary.parquet", "", "a dictionary of 4 bytes claims to hold");
}

#[test]
fn long_files_that_take_no_room_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let footer = u32::MAX.to_le_bytes();
    let parquet_end = [&footer[..], b"PAR1"].concat();
    sparse(&at("footer.parquet"), b"PAR1", 5 << 30, &parquet_end);
    refuses(dir.path(), "footer.parquet", "", "bytes of metadata");
    // Room for as many row groups as there are bytes: version 1, schema of one element, no rows, row groups.
    let length = 200_000_000u32;
    let metadata =
        [&[0x15, 2, 0x19, 0x1C, 0x48, 1, b'a', 0, 0x16, 0, 0x19, 0xFC][..], &varint(199_000_000)]
            .concat();
    let end = [&length.to_le_bytes()[..], b"PAR1"].concat();
    let start = [b"PAR1".to_vec(), metadata].concat();
    sparse(&at("groups.parquet"), &start, 4 + u64::from(length) + 8, &end);
    refuses(dir.path(), "groups.parquet", "", "metadata");
    let arrow_end = [&footer[..], b"ARROW1"].concat();
    sparse(&at("footer.arrow"), b"ARROW1\0\0", 5 << 30, &arrow_end);
    refuses(dir.path(), "footer.arrow", "", "bytes of metadata");
    sparse(&at("stream.arrow"), &[&[255; 4][..], &[255, 255, 255, 127]].concat(), 5 << 30, b"");
    refuses(dir.path(), "stream.arrow", "--format arrow", "bytes of metadata");
    // An HDF5 file whose root group has names of 32 GB.
    let mut hdf5 = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0".to_vec();
    for word in [0, u64::MAX, 64 << 30, u64::MAX, 0, 96, 0, 0, 0] {
        hdf5.extend(u64::to_le_bytes(word));
    }
    hdf5.truncate(96);
    hdf5.extend([1, 0, 1, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 16, 0, 0, 0, 0, 0]);
    hdf5.extend([1000u64.to_le_bytes(), 136u64.to_le_bytes()].concat());
    hdf5.extend(b"HEAP\0\0\0\0");
    hdf5.extend([32u64 << 30, 0, 2000].map(u64::to_le_bytes).concat());
    sparse(&at("names.h5"), &hdf5, 64 << 30, b"");
    refuses(dir.path(), "names.h5", "", "at most 67108864 are read");
    // Equal rows, as many as the file is long: read a few at a time, so only the search for a bad one would be long.
    let shape = format!("({}, {})", 1u64 << 12, 1 << 24);
    sparse(&at("wide.npy"), &common::npy(&shape, &[]), 257 << 30, b"");
    let output = confined(dir.path(), "inspect wide.npy --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sparse(&at("model.frosh"), &[8, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'], 64 << 30, b"");
    refuses(dir.path(), "model.frosh", "", "");
}

#[test]
fn claims_of_small_files_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let little =
        |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(at("a.npy"), common::npy("(4611686018427387904, 16777216)", &[1.0; 9])).unwrap();
    refuses(dir.path(), "a.npy", "", "cut short");
    std::fs::write(at("a.fbin"), little(&[u32::MAX, 1 << 24, 0, 0])).unwrap();
    refuses(dir.path(), "a.fbin", "", "cut short");
    std::fs::write(at("a.fvecs"), little(&[1 << 24, 0, 0])).unwrap();
    refuses(dir.path(), "a.fvecs", "", "cut short");
    let idx = [&[0, 0, 14, 2][..], &u32::MAX.to_be_bytes(), &(1u32 << 24).to_be_bytes(), &[0; 9]];
    std::fs::write(at("a.idx"), idx.concat()).unwrap();
    refuses(dir.path(), "a.idx", "", "cut short");
    // The same where the size is not known beforehand.
    for name in ["a.npy", "a.fbin", "a.fvecs", "a.idx"] {
        let bytes = std::fs::read(at(name)).unwrap();
        gzip(&at(&format!("{name}.gz")), std::iter::once(bytes));
        refuses(dir.path(), &format!("{name}.gz"), "", "cut short");
    }
    // A window of 3.75 TB.
    std::fs::write(at("a.npy.zst"), [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 1, 0, 0, 0]).unwrap();
    refuses(dir.path(), "a.npy.zst", "", "");
    // An archive whose directory claims 65,535 entries, and one of 2^60.
    let end = |entries: u16| {
        let entries = entries.to_le_bytes();
        [b"PK\x05\x06\0\0\0\0".to_vec(), entries.into(), entries.into(), vec![0; 10]].concat()
    };
    std::fs::write(at("a.npz"), [b"PK\x03\x04".to_vec(), end(65535)].concat()).unwrap();
    refuses(dir.path(), "a.npz", "", "");
    let mut wide = b"PK\x03\x04".to_vec();
    wide.extend(
        [b"PK\x06\x06".to_vec(), 44u64.to_le_bytes().into(), vec![45, 0, 45, 0], vec![0; 8]]
            .concat(),
    );
    wide.extend([1u64 << 60, 1 << 60, 1 << 62, 0].map(u64::to_le_bytes).concat());
    wide.extend(
        [b"PK\x06\x07".to_vec(), vec![0; 4], 4u64.to_le_bytes().into(), vec![1, 0, 0, 0]].concat(),
    );
    std::fs::write(at("b.npz"), [wide, end(65535)].concat()).unwrap();
    refuses(dir.path(), "b.npz", "", "");
}

#[test]
fn what_becomes_long_by_unpacking_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Lines without an end: more than the longest row of numbers.
    let ones = || std::iter::repeat_n(b"1,".repeat(1 << 19), 600);
    gzip(&at("line.csv.gz"), ones());
    refuses(dir.path(), "line.csv.gz", "", "line 1 is longer than");
    gzip(&at("line.tsv.gz"), std::iter::repeat_n(b"1\t".repeat(1 << 19), 600));
    refuses(dir.path(), "line.tsv.gz", "", "line 1 is longer than");
    gzip(&at("line.libsvm.gz"), std::iter::repeat_n(vec![b'7'; 1 << 20], 600));
    refuses(dir.path(), "line.libsvm.gz", "--dim 4", "line 1 is longer than");
    // Few bytes for each wide row, the last of which is bad.
    let rows = [b"0 16777216:1\n".repeat(20), b"0 16777217:1\n".to_vec()].concat();
    std::fs::write(at("wide.libsvm"), rows).unwrap();
    refuses(dir.path(), "wide.libsvm", "", "16777217");
    // Rows of 128 MB, and the stream ends within one.
    let header = common::npy("(9, 16777216)", &[]);
    let header = String::from_utf8_lossy(&header[10..]).replace("<f4", "<f8").into_bytes();
    let start = [b"\x93NUMPY\x01\x00".to_vec(), (header.len() as u16).to_le_bytes().into(), header]
        .concat();
    gzip(
        &at("wide.npy.gz"),
        std::iter::once(start).chain(std::iter::repeat_n(vec![0; 1 << 20], 300)),
    );
    let output = confined(dir.path(), "convert wide.npy.gz out.npy");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cut short"), "{said}");
}
