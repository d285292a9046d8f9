//! Tests of rows whose ids are names.

use super::manifest::Manifest;
use super::names::{MAX_NAME_BYTES, NameWriter, Names};
use super::safety_tests::{Change, each_step_of};
use super::seal::Seal;
use super::tests::{DIM, data, hasher, names, rows, small};
use super::*;
use crate::{Hit, IdSet, Metric, Ranking, Search};

fn create(folder: &Path) -> IndexWriter {
    let stored = Some(StoredVectors::F32);
    IndexWriter::create(folder, hasher(Metric::L2), true, stored).unwrap()
}

fn add(writer: &mut IndexWriter, values: &[f32], names: &[String], replace: bool) -> Result<u64> {
    let mut adding = writer.add().replace(replace);
    let half = names.len() / 2;
    adding.push_with_names(rows(&values[..half * DIM]), &names[..half])?;
    adding.push_with_names(rows(&values[half * DIM..]), &names[half..])?;
    adding.commit()
}

/// An index of `count` rows called n0, n1, .., of which two are removed.
fn named(folder: &Path, count: usize) {
    let mut writer = create(folder);
    let names: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
    add(&mut writer, &data(count, 5), &names, false).unwrap();
    writer.remove_names(&["n3", "n8"]).unwrap();
}

/// A random sequence of changes, compared with a list of names and rows in the order in which they were added.
#[test]
fn an_index_of_names_answers_as_a_list_of_names_and_rows() {
    let hasher = hasher(Metric::L2);
    for seed in 0..3u64 {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let mut writer = create(&folder);
        writer.add().commit().unwrap();
        let mut oracle: Vec<(String, Vec<f32>)> = Vec::new();
        let mut state = seed + 1;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..16 {
            match draw(5) {
                0..=2 => {
                    let replace = draw(2) == 0;
                    let mut names: Vec<String> = Vec::new();
                    for _ in 0..1 + draw(40) {
                        let name = format!("né{}", draw(200));
                        let there = oracle.iter().any(|(other, _)| *other == name);
                        if !names.contains(&name) && (replace || !there) {
                            names.push(name);
                        }
                    }
                    let values = data(names.len(), 11 * seed + step);
                    let before = oracle.len();
                    oracle.retain(|(name, _)| !names.contains(name));
                    let replaced = (before - oracle.len()) as u64;
                    assert_eq!(add(&mut writer, &values, &names, replace).unwrap(), replaced);
                    oracle.extend(names.into_iter().zip(values.chunks(DIM).map(<[f32]>::to_vec)));
                }
                3 => {
                    let names: Vec<String> =
                        (0..draw(30)).map(|_| format!("né{}", draw(220))).collect();
                    let before = oracle.len();
                    oracle.retain(|(name, _)| !names.contains(name));
                    let removed = writer.remove_names(&names).unwrap();
                    assert_eq!(removed, (before - oracle.len()) as u64);
                }
                _ => writer.compact().unwrap(),
            }
            let asked = data(3, 99);
            let queries = hasher.queries(rows(&asked)).unwrap();
            for index in [writer.index(), &Index::open(&folder).unwrap()] {
                index.check().unwrap();
                assert_eq!(index.len(), oracle.len() as u64);
                for i in 0..220 {
                    let name = format!("né{i}");
                    let found = index.find(&name).unwrap();
                    assert_eq!(found.is_some(), oracle.iter().any(|(other, _)| *other == name));
                    if let Some(id) = found {
                        assert_eq!(index.name(id).unwrap(), Some(&*name));
                    }
                }
                let even = |name: &&str| name.len().is_multiple_of(2);
                let chosen: Vec<&str> =
                    oracle.iter().map(|(name, _)| &**name).filter(even).collect();
                let filter = index.find_all(chosen.iter().chain(&["nobody"])).unwrap();
                for filter in [None, Some(&filter)] {
                    let among =
                        oracle.iter().filter(|(name, _)| filter.is_none() || even(&&**name));
                    let (names, values): (Vec<&str>, Vec<&[f32]>) =
                        among.map(|(name, row)| (&**name, &row[..])).unzip();
                    let codes = hasher.encode_with_factors(rows(&values.concat())).unwrap();
                    let search = Search::nearest(9).ranking(Ranking::Estimated).rerank(0);
                    let want = codes.search(&queries, &search.clone().rerank(0)).unwrap();
                    let got = index.search(rows(&asked), &Search { filter, ..search }).unwrap();
                    for (got, want) in got.iter().zip(&want) {
                        let name = |hit: &Hit| index.name(hit.id).unwrap().unwrap();
                        let got: Vec<_> = got.iter().map(|h| (name(h), h.distance)).collect();
                        let name = |hit: &Hit| names[hit.id as usize];
                        let want: Vec<_> = want.iter().map(|h| (name(h), h.distance)).collect();
                        assert_eq!(got, want);
                    }
                }
            }
        }
    }
}

#[test]
fn whatever_step_fails_or_is_the_last_names_are_as_before_or_as_after() {
    let changes: [(&str, Change); 4] = [
        ("add", |folder| {
            let mut writer = IndexWriter::open(folder)?;
            // The change is made twice, with other names.
            let names = ["x", "y", "z"].map(|name| format!("{name}{}", writer.index().len()));
            add(&mut writer, &data(3, 3), &names, false).map(drop)
        }),
        ("replace", |folder| {
            let names = ["n12", "new", "n4"].map(str::to_owned);
            add(&mut IndexWriter::open(folder)?, &data(3, 4), &names, true).map(drop)
        }),
        ("remove", |folder| IndexWriter::open(folder)?.remove_names(&["n8", "n10"]).map(drop)),
        ("two changes", |folder| {
            let mut writer = IndexWriter::open(folder)?;
            writer.remove_names(&["n20"])?;
            writer.compact()
        }),
    ];
    each_step_of(&changes, "two changes", |base| {
        named(base, 30);
        let mut writer = IndexWriter::open(base).unwrap();
        let more: Vec<String> = (0..9).map(|i| format!("m{i}")).collect();
        add(&mut writer, &data(9, 6), &more, false).unwrap();
    });
}

#[test]
fn names_and_whole_numbers_are_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let (by_number, by_name) = (dir.path().join("numbers"), dir.path().join("names"));
    let (_, new) = small(&by_number, None, Metric::L2);
    named(&by_name, 10);
    let two = rows(&new[..2 * DIM]);
    let mut writer = IndexWriter::open(&by_number).unwrap();
    let said = writer.add().push_with_names(two, &["a", "b"]).unwrap_err().to_string();
    assert!(said.contains("are whole numbers, and these are names"), "{said}");
    assert!(writer.remove_names(&["a"]).is_err());
    assert!(writer.index().find_all(["a"]).is_err());
    assert_eq!(writer.index().find("a").unwrap(), None);
    assert_eq!(writer.index().name(2).unwrap(), None);
    let mut writer = IndexWriter::open(&by_name).unwrap();
    let with_ids = writer.add().push_with_ids(two, &[77, 78]).unwrap_err();
    let automatic = writer.add().push(two).unwrap_err();
    let refused = [with_ids, automatic, writer.remove(&[1]).unwrap_err()];
    for error in refused {
        let said = error.to_string();
        assert!(said.contains("are names, and these are whole numbers"), "{said}");
    }
    let mut adding = writer.add();
    adding.push_with_names(two, &["a", "b"]).unwrap();
    assert!(adding.push(two).is_err());
    drop(adding);
    assert_eq!(writer.index().len(), 8);
    // An index without rows takes both.
    let all: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
    writer.remove_names(&all).unwrap();
    writer.compact().unwrap();
    let mut adding = writer.add();
    adding.push_with_ids(two, &[7, 5]).unwrap();
    adding.commit().unwrap();
    assert!(!writer.index().has_names() && writer.index().contains(7).unwrap());
    // Rows of one addition are of one kind too.
    let mut writer = create(&dir.path().join("new"));
    let mut adding = writer.add();
    adding.push_with_ids(two, &[1, 2]).unwrap();
    let said = adding.push_with_names(two, &["a", "b"]).unwrap_err().to_string();
    assert!(said.contains("some have names") || said.contains("names and some numbers"), "{said}");
}

#[test]
fn names_that_are_there_or_come_twice_or_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    named(dir.path(), 10);
    let tidy = names(dir.path());
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    for (new, twice) in [(["x", "n4"], "n4"), (["y", "y"], "y")] {
        let refused = add(&mut writer, &data(2, 1), &new.map(str::to_owned), false).unwrap_err();
        assert!(matches!(&refused, Error::DuplicateName { name } if name == twice), "{refused}");
        assert_eq!(names(dir.path()), tidy);
    }
    // Twice among the rows being added is an error also if others are replaced.
    assert!(add(&mut writer, &data(2, 1), &["y", "y"].map(str::to_owned), true).is_err());
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for bad in ["", &long] {
        let said = writer.add().push_with_names(rows(&data(1, 1)), &[bad]).unwrap_err();
        assert!(said.to_string().contains("1 to 65536"), "{said}");
    }
    assert!(writer.add().push_with_names(rows(&data(1, 1)), &["a", "b"]).is_err());
    let longest = long[1..].to_owned();
    add(&mut writer, &data(1, 1), std::slice::from_ref(&longest), false).unwrap();
    // The name of a removed row can be added again.
    add(&mut writer, &data(1, 1), &["n3".to_owned()], false).unwrap();
    writer.compact().unwrap();
    let index = Index::open(dir.path()).unwrap();
    assert!(index.find(&longest).unwrap().is_some() && index.find("n3").unwrap().is_some());
    assert_eq!((index.find("").unwrap(), index.len()), (None, 10));
}

#[test]
fn an_index_of_whole_numbers_is_written_as_before_and_names_need_a_newer_version() {
    let dir = tempfile::tempdir().unwrap();
    let text = |folder: &Path| std::fs::read_to_string(folder.join(manifest::NAME)).unwrap();
    small(&dir.path().join("a"), None, Metric::L2);
    let numbers = text(&dir.path().join("a"));
    assert!(numbers.contains("\"version\": 1,") && !numbers.contains("name"), "{numbers}");
    named(&dir.path().join("b"), 5);
    assert!(text(&dir.path().join("b")).contains("\"version\": 2,"));
}

/// Bytes of every file of names are changed, or the file is cut.
#[test]
fn damaged_names_are_an_error_that_names_the_file() {
    for count in [12, 9000] {
        let dir = tempfile::tempdir().unwrap();
        named(dir.path(), count);
        for name in ["000001.names.npy", "000001.name_ends.npy", "000001.name_lookup.npy"] {
            let path = dir.path().join(name);
            let whole = std::fs::read(&path).unwrap();
            for length in [0, 100, 128, whole.len() - 1] {
                std::fs::write(&path, &whole[..length]).unwrap();
                let said = Index::open(dir.path()).unwrap_err().to_string();
                assert!(said.contains(name), "{said}");
            }
            for at in (128..whole.len()).step_by(1 + whole.len() / 61) {
                let mut changed = whole.clone();
                changed[at] ^= 1 << (at % 8);
                std::fs::write(&path, &changed).unwrap();
                let index = Index::open(dir.path()).unwrap();
                // Each answer is right, or an error with the name of the file.
                let mut errors = 0;
                for row in (0..count).filter(|row| ![3, 8].contains(row)) {
                    let want = format!("n{row}");
                    let answers = [
                        index.name(row as u64).map(|name| name.map(str::to_owned)),
                        index.find(&want).map(|id| id.map(|id| format!("n{id}"))),
                    ];
                    for answer in answers {
                        match answer {
                            Ok(got) => assert_eq!(got.as_ref(), Some(&want), "{name} at {at}"),
                            Err(error) => {
                                errors += 1;
                                assert!(error.to_string().contains(name), "{error}");
                            }
                        }
                    }
                }
                assert!(errors > 0, "{name} at {at}");
                // Without verification, and where names are changed, there is no panic.
                let index = Index::open(dir.path()).unwrap().verify(false);
                for row in 0..count {
                    let _ = (index.name(row as u64), index.find(&format!("n{row}")));
                }
                let said = index.check().unwrap_err().to_string();
                assert!(said.contains(name), "{said}");
                let mut writer = IndexWriter::open(dir.path()).unwrap();
                assert!(writer.compact().unwrap_err().to_string().contains(name));
            }
            std::fs::write(&path, &whole).unwrap();
        }
        Index::open(dir.path()).unwrap().check().unwrap();
    }
}

/// Arrays that contradict each other, with checksums that fit.
#[test]
fn hostile_names_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    named(dir.path(), 6);
    // Six names of two bytes.
    let cases: [(&str, usize, &[u8], &str); 7] = [
        ("name_ends", 8, &1u64.to_le_bytes(), "from byte 2 to 1"),
        ("name_ends", 16, &u64::MAX.to_le_bytes(), "name of row 2"),
        ("name_ends", 40, &11u64.to_le_bytes(), "ends at 11 of 12"),
        ("names", 4, &[0xFF, 0xFE], "not UTF-8"),
        ("name_lookup", 0, &[6, 0, 0, 0], "lists row 6"),
        ("name_lookup", 8, &[0xFF; 4], "lists row 4294967295"),
        ("name_lookup", 4, &[0xFF; 4], "not in order"),
    ];
    for (array, at, bytes, why) in cases {
        let folder = dir.path().join("copy");
        std::fs::create_dir(&folder).unwrap();
        for name in names(dir.path()).iter().filter(|name| *name != "copy") {
            std::fs::copy(dir.path().join(name), folder.join(name)).unwrap();
        }
        let path = folder.join(format!("000001.{array}.npy"));
        let mut file = std::fs::read(&path).unwrap();
        file[128 + at..][..bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, &file).unwrap();
        let mut manifest = Manifest::load(&folder).unwrap();
        let sums = &mut manifest.segments[0].checksums;
        let sum = match array {
            "names" => &mut sums.names,
            "name_ends" => &mut sums.name_ends,
            _ => &mut sums.name_lookup,
        };
        *sum = Some(column::checksum(&file[128..]));
        manifest.save(&folder, "000099.index.json").unwrap();
        let index = Index::open(&folder).unwrap();
        for row in 0..6 {
            let _ = (index.name(row), index.find(&format!("n{row}")));
        }
        let said = index.check().unwrap_err().to_string();
        assert!(said.contains(why) && said.contains(array), "{said}");
        let mut writer = IndexWriter::open(&folder).unwrap();
        assert!(writer.compact().is_err());
        let _ = writer.remove_names(&["n1", "n4"]);
        let _ = add(&mut writer, &data(2, 1), &["n1", "n5"].map(str::to_owned), true);
        std::fs::remove_dir_all(&folder).unwrap();
    }
    // A manifest that says that there are names where there are none, and the reverse.
    let mut manifest = Manifest::load(dir.path()).unwrap();
    manifest.names = false;
    manifest.save(dir.path(), "000098.index.json").unwrap();
    assert!(Index::open(dir.path()).unwrap_err().to_string().contains("its rows have names"));
    manifest.names = true;
    manifest.segments[0].name_bytes = Some(u64::MAX);
    manifest.save(dir.path(), "000099.index.json").unwrap();
    assert!(Index::open(dir.path()).unwrap_err().to_string().contains("000001.names.npy"));
}

/// Among 300,000 names some have equal hashes.
#[test]
fn names_with_equal_hashes_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = |form: Form| dir.path().join(form.name);
    let mut writer = NameWriter::create(path).unwrap();
    let name = |i: usize| format!("https://example.org/{i}");
    (0..300_000).try_for_each(|i| writer.push(&name(i))).unwrap();
    let done = writer.finish().unwrap();
    let open = |form: Form, rows, finished: &column::Finished| {
        let bytes = column::map(&path(form), form, rows).unwrap();
        (bytes, Seal::whole(path(form), finished.whole.clone()))
    };
    let (bytes, bytes_seal) = open(Form::names(), done.bytes, &done.names);
    let (ends, ends_seal) = open(Form::name_ends(), 300_000, &done.ends);
    let (lookup, lookup_seal) = open(Form::name_lookup(), 300_000, &done.lookup);
    let hashes: BTreeSet<&[u8]> = lookup.chunks(8).map(|entry| &entry[4..]).collect();
    assert!(hashes.len() < 300_000, "no two hashes are equal");
    let all = Names { bytes, ends, lookup, bytes_seal, ends_seal, lookup_seal };
    all.check().unwrap();
    for i in 0..300_000 {
        assert_eq!(all.find(&name(i), true).unwrap(), Some(i));
    }
    assert_eq!(all.find(&name(300_000), true).unwrap(), None);
    let every: IdSet = (0..300_000).collect();
    assert_eq!(all.common(&all, true).unwrap(), every);
}
