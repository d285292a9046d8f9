//! Tests that files of others are never lost, changes are atomic, and damage is detected.

use super::disk::faults;
use super::tests::{DIM, data, hasher, names, rows, small};
use super::*;
use crate::{Hit, IdSet, Metric, Ranking, Rows, Search};

/// A temporary folder in memory if the system has one, because thousands of syncs on a disk take long.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for name in names(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// Number of rows, and of rows that were learned, the hits of a search that returns every id with its score, and their
/// names.
type Answers = (u64, Option<u64>, Vec<Vec<Hit>>, Vec<Option<String>>);

fn answers(folder: &Path) -> Answers {
    let index = Index::open(folder).unwrap();
    index.check().unwrap();
    let all = Search::nearest(5000).ranking(Ranking::Estimated).rerank(0);
    let found = index.search(rows(&data(2, 77)), &all).unwrap();
    let name = |hit: &Hit| index.name(hit.id).unwrap().map(str::to_owned);
    let names = found[0].iter().map(name).collect();
    (index.len(), index.learned_rows(), found, names)
}

/// A change to an index in a folder.
pub(super) type Change = fn(&Path) -> Result<()>;

const CHANGES: [(&str, Change); 5] = [
    ("add", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        let mut adding = writer.add();
        adding.push(rows(&data(30, 3)))?;
        adding.commit().map(|_| ())
    }),
    ("replace, ids out of order", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        let mut adding = writer.add().replace(true);
        adding.push_with_ids(rows(&data(3, 4)), &[12, 4, 1001])?;
        adding.commit().map(|_| ())
    }),
    ("remove", |folder| IndexWriter::open(folder)?.remove(&[8, 10]).map(|_| ())),
    ("compact", |folder| IndexWriter::open(folder)?.compact()),
    ("two changes", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        writer.remove(&[20])?;
        writer.compact()
    }),
];

/// For each file operation of each change: the operation fails, or the writer is killed before it. If the change fails, the
/// index is unchanged. If it succeeds, it is made. After a kill it is one or the other. In all cases the next writer leaves
/// the files of the index and those of others, and no more.
#[test]
fn whatever_step_fails_or_is_the_last_the_index_is_as_before_or_as_after() {
    each_step_of(&CHANGES, "two changes", |base| {
        small(base, Some(StoredVectors::F32), Metric::L2);
        CHANGES[0].1(base).unwrap();
        IndexWriter::open(base).unwrap().remove(&[2, 6, 405]).unwrap();
    });
}

/// The test above for some changes to an index that `make` makes. Of the changes called `double`, the first one removes
/// the row with id 20 or the name n20.
pub(super) fn each_step_of(changes: &[(&str, Change)], double: &str, make: impl Fn(&Path)) {
    let dir = quick_dir();
    let base = dir.path().join("base");
    make(&base);
    // Files of others with names that the writer could use next.
    let mine = ["000009.codes.npy", "000010.index.json", "000011.ids.npy", "20260101.vectors.npy"];
    for name in mine {
        std::fs::write(base.join(name), "mine").unwrap();
    }
    for (name, change) in changes {
        let before = answers(&base);
        let after = dir.path().join("after");
        copy(&base, &after);
        change(&after).unwrap();
        let after = answers(&after);
        let middle = dir.path().join("middle");
        copy(&base, &middle);
        let mut writer = IndexWriter::open(&middle).unwrap();
        match writer.index().has_names() {
            true => writer.remove_names(&["n20"]).unwrap(),
            false => writer.remove(&[20]).unwrap(),
        };
        drop(writer);
        let middle = (*name == double).then(|| answers(&middle));
        for killed in [false, true] {
            let mut reached = true;
            let mut steps = 0;
            while reached {
                let folder = dir.path().join("try");
                copy(&base, &folder);
                let done;
                (done, reached) = faults::with(steps, killed, || change(&folder));
                let what = format!("{name}, step {steps}, killed: {killed}, {done:?}");
                let got = answers(&folder);
                match (&done, &middle) {
                    _ if killed => {
                        assert!(got == before || got == after || Some(&got) == middle.as_ref());
                        assert!(reached || (done.is_ok() && got == after), "{what}");
                    }
                    (Ok(()), _) => assert!(got == after, "{what}"),
                    (Err(_), None) => assert!(got == before, "{what}"),
                    // The first of two changes may be made.
                    (Err(_), Some(middle)) => assert!(got == before || got == *middle, "{what}"),
                }
                // The next writer removes leftover files and does not change the index.
                drop(IndexWriter::open(&folder).unwrap());
                assert!(answers(&folder) == got, "{what}");
                let index = Index::open(&folder).unwrap();
                assert_eq!(index.other_files().unwrap(), mine, "{what}");
                assert!(!folder.join(journal::NAME).exists(), "{what}");
                for name in mine {
                    assert_eq!(std::fs::read(folder.join(name)).unwrap(), b"mine", "{what}");
                }
                // The change can be made now.
                change(&folder).unwrap();
                std::fs::remove_dir_all(&folder).unwrap();
                steps += 1;
            }
            assert!(steps > 10, "{name}: only {steps} steps");
        }
        for name in ["after", "middle"] {
            std::fs::remove_dir_all(dir.path().join(name)).unwrap();
        }
    }
}

#[test]
fn a_build_that_fails_or_is_killed_at_any_step_can_be_started_again() {
    let dir = quick_dir();
    let (hasher, new) = (hasher(Metric::L2), data(40, 5));
    let folder = dir.path().join("deep/er/index");
    let build = || {
        let mut writer = IndexWriter::create(&folder, &hasher, true, None)?;
        let mut adding = writer.add();
        adding.push(rows(&new))?;
        adding.commit()
    };
    for killed in [false, true] {
        let (mut reached, mut steps) = (true, 0);
        while reached {
            let done;
            (done, reached) = faults::with(steps, killed, build);
            let what = format!("step {steps}, killed: {killed}, {done:?}");
            if done.is_err() && !killed {
                assert!(!folder.join(manifest::NAME).exists(), "{what}");
            }
            if !folder.join(manifest::NAME).exists() {
                build().unwrap();
            }
            drop(IndexWriter::open(&folder).unwrap());
            let tidy =
                ["000001.codes.npy", "000001.factors.npy", "index.json", "lock", "model.frosh"];
            assert_eq!(names(&folder), tidy, "{what}");
            assert_eq!(Index::open(&folder).unwrap().len(), 40);
            std::fs::remove_dir_all(dir.path().join("deep")).unwrap();
            steps += 1;
        }
        assert!(steps > 10);
    }
    // A build that is dropped leaves a folder in which another build can start.
    std::fs::create_dir_all(&folder).unwrap();
    drop(IndexWriter::create(&folder, &hasher, true, None).unwrap());
    assert_eq!(names(&folder), ["lock"]);
    build().unwrap();
}

#[test]
fn a_folder_with_files_of_others_is_refused_and_they_stay_whatever_they_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let hasher = hasher(Metric::L2);
    for (name, content) in [
        ("photo.jpg", "mine"),
        ("20260101.vectors.npy", "mine"),
        ("000001.codes.npy", "mine"),
        ("000001.removed", "mine"),
        (".frosh-x.tmp", "mine"),
        ("model.frosh", "mine"),
        ("journal", "Monday: rain"),
        ("lock", "mine"),
    ] {
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
        let said = IndexWriter::create(&folder, &hasher, true, None).unwrap_err().to_string();
        assert!(said.contains(name), "{said}");
        assert_eq!(names(&folder), [name]);
        assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), content);
        // A journal in the folder does not make them files of the index.
        if name != "journal" {
            let mut journal = Journal::load(&folder).unwrap();
            journal.add(["000007.codes.npy".to_owned()]).unwrap();
            let said = IndexWriter::create(&folder, &hasher, true, None).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
            assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), content);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
    let folder = dir.path().join("index");
    small(&folder, None, Metric::L2);
    let said = IndexWriter::create(&folder, &hasher, true, None).unwrap_err().to_string();
    assert!(said.contains("already"), "{said}");
    // No lock file is left in a folder without an index.
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(IndexWriter::open(&empty).is_err() && names(&empty).is_empty());
}

#[test]
fn the_names_of_new_folders_are_synced() {
    let dir = tempfile::tempdir().unwrap();
    let hasher = hasher(Metric::L2);
    let folder = dir.path().join("a/b/index");
    let steps = faults::steps(|| drop(IndexWriter::create(&folder, &hasher, true, None).unwrap()));
    for parent in [dir.path(), &dir.path().join("a"), &dir.path().join("a/b")] {
        assert!(steps.iter().any(|step| step == parent), "{} in {steps:?}", parent.display());
    }
}

/// The folder was written by a version without journals and block checksums.
#[test]
fn an_index_of_before_journals_is_read_and_changed_and_what_it_does_not_name_stays() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/index");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("index");
    copy(&old, &folder);
    // Files of an addition that was killed in that version.
    let left = ["000005.codes.npy", "000006.removed", ".frosh-x.tmp"];
    for name in left {
        std::fs::write(folder.join(name), "half").unwrap();
    }
    let dim = 8;
    let values: Vec<f32> =
        (0..300u64 * dim).map(|i| ((i * i * 31 + 17 * i) % 41) as f32 - 20.0).collect();
    let asked = Rows::new(&values, dim as usize).unwrap();
    let index = Index::open(&folder).unwrap();
    index.check().unwrap();
    assert_eq!((index.len(), index.removed(), index.segments()), (598, 2, 2));
    assert_eq!(
        index.other_files().unwrap(),
        [".frosh-x.tmp", "000005.codes.npy", "000006.removed"]
    );
    let best = |index: &Index| index.search(asked, &Search::nearest(2).rerank(4)).unwrap();
    let before = best(&index);
    assert_eq!(before[1][0].id, 3);
    let mut writer = IndexWriter::open(&folder).unwrap();
    let mut adding = writer.add();
    adding.push(asked).unwrap();
    adding.commit().unwrap();
    writer.remove(&(1198..1498).collect::<Vec<_>>()).unwrap();
    assert_eq!(best(writer.index()), before);
    writer.compact().unwrap();
    assert_eq!(best(writer.index()), before);
    assert_eq!(best(&Index::open(&folder).unwrap()), before);
    drop(writer);
    let others = Index::open(&folder).unwrap().other_files().unwrap();
    assert_eq!(others, [".frosh-x.tmp", "000005.codes.npy", "000006.removed"]);
    for name in left {
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), b"half");
    }
    assert_eq!(names(&folder).len(), 5 + 3 + left.len(), "{:?}", names(&folder));
    // A changed byte in the vectors is found when any vector is read.
    let folder = dir.path().join("again");
    copy(&old, &folder);
    let path = folder.join("000001.vectors.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let index = Index::open(&folder).unwrap();
    let first: IdSet = [0].into_iter().collect();
    let search = Search::nearest(1).filter(&first);
    let said = index.search(asked.slice(0..1), &search).unwrap_err().to_string();
    assert!(said.contains("000001.vectors.npy"), "{said}");
}

/// An index of `count` rows with even ids, two of them removed.
fn sized(folder: &Path, count: u64) -> Vec<f32> {
    let (hasher, new) = (hasher(Metric::L2), data(count as usize, 6));
    let mut writer = IndexWriter::create(folder, &hasher, true, Some(StoredVectors::F32)).unwrap();
    let mut adding = writer.add();
    let ids: Vec<u64> = (0..count).map(|i| 2 * i).collect();
    adding.push_with_ids(rows(&new), &ids).unwrap();
    adding.commit().unwrap();
    writer.remove(&[4, 8]).unwrap();
    new
}

/// Changes bytes of every file. A search returns the right hits or an error with the path of the file.
#[test]
fn damage_is_an_error_that_names_the_file_and_never_a_wrong_answer() {
    for large in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        // All arrays have several blocks, or all have one.
        let new = sized(dir.path(), if large { 20_000 } else { 40 });
        let (asked, pool) = (rows(&new[..2 * DIM]), Pool::new(2).unwrap());
        let rankings = [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated];
        let ask = |index: &Index| {
            rankings.map(|ranking| {
                let search = Search::nearest(9).ranking(ranking).rerank(0);
                pool.install(|| index.search(asked, &search)).map_err(|error| error.to_string())
            })
        };
        let exact = |index: &Index, found: &[Vec<Hit>]| {
            let ids: IdSet = found.iter().flatten().map(|hit| hit.id).collect();
            let search = Search::nearest(3).ranking(Ranking::Hamming).filter(&ids).rerank(6);
            pool.install(|| index.search(asked, &search)).map_err(|error| error.to_string())
        };
        let sound = ask(&Index::open(dir.path()).unwrap()).map(|found| found.unwrap());
        let order = exact(&Index::open(dir.path()).unwrap(), &sound[0]).unwrap();
        let mut files = names(dir.path());
        files.retain(|name| name != LOCK);
        assert_eq!(files.iter().any(|name| name == "000001.checksums.npy"), large);
        for name in &files {
            let path = dir.path().join(name);
            let whole = std::fs::read(&path).unwrap();
            // The last byte of index.json is a line break, which the checksum does not cover.
            for length in [0, 1, 127, 128, whole.len() / 2, whole.len() - 2] {
                std::fs::write(&path, &whole[..length.min(whole.len() - 2)]).unwrap();
                let said = Index::open(dir.path()).unwrap_err().to_string();
                assert!(said.contains(name.as_str()), "{name} cut to {length}: {said}");
            }
            for at in (0..whole.len()).step_by(1 + whole.len() / 97) {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << (at % 8);
                std::fs::write(&path, &flipped).unwrap();
                let index = match Index::open(dir.path()) {
                    Ok(index) => index,
                    Err(error) => {
                        let said = error.to_string();
                        assert!(said.contains(name.as_str()), "{name} at {at}: {said}");
                        continue;
                    }
                };
                let what = format!("{name} at {at}");
                let found = ask(&index);
                for ((ranking, found), sound) in rankings.iter().zip(&found).zip(&sound) {
                    let reads = match name.as_str() {
                        "000001.codes.npy" | "000001.ids.npy" => true,
                        "000001.factors.npy" => *ranking == Ranking::Estimated,
                        _ => false,
                    };
                    match found {
                        Ok(found) => assert!(!reads && found == sound, "{what}, {ranking}"),
                        // A damaged checksum is reported for the array it belongs to.
                        Err(said) if name == "000001.checksums.npy" => {
                            assert!(said.contains(".npy: its checksum"), "{what}: {said}");
                        }
                        Err(said) => assert!(reads && said.contains(name.as_str()), "{what}"),
                    }
                }
                match exact(&index, &sound[0]) {
                    Ok(found) => assert_eq!(found, order, "{what}"),
                    Err(said) if name == "000001.checksums.npy" => {
                        assert!(said.contains(".npy: its checksum"), "{what}: {said}");
                    }
                    Err(said) => assert!(said.contains(name.as_str()), "{what}: {said}"),
                }
                if name == "000001.ids.npy" {
                    assert!(index.contains(8).is_err(), "{what}");
                    let mut writer = IndexWriter::open(dir.path()).unwrap();
                    assert!(writer.remove(&[16]).is_err(), "{what}");
                    let mut adding = writer.add();
                    adding.push_with_ids(rows(&new[..DIM]), &[17]).unwrap();
                    assert!(adding.commit().is_err(), "{what}");
                }
                // Without verification the hits may be wrong, but nothing panics.
                let index = Index::open(dir.path()).unwrap().verify(false);
                let found = ask(&index).map(|found| found.unwrap());
                exact(&index, &found[0]).unwrap();
                index.contains(8).unwrap();
                let said = index.check().expect_err("a changed byte").to_string();
                assert!(said.contains(name.as_str()), "{what}: {said}");
                // Damaged data are not rewritten.
                let said = IndexWriter::open(dir.path()).unwrap().compact().unwrap_err();
                assert!(said.to_string().contains(name.as_str()), "{what}: {said}");
                assert!(std::fs::read(&path).unwrap() == flipped, "{what}");
                assert!(Index::open(dir.path()).unwrap().other_files().unwrap().is_empty());
            }
            std::fs::remove_file(&path).unwrap();
            assert!(Index::open(dir.path()).is_err(), "{name} missing");
            std::fs::write(&path, &whole).unwrap();
        }
        Index::open(dir.path()).unwrap().check().unwrap();
        // The model file is replaced by another model.
        let other = self::hasher(Metric::Cosine);
        other.save(dir.path().join(MODEL)).unwrap();
        let said = Index::open(dir.path()).unwrap_err().to_string();
        assert!(said.contains("but the index was built with model"), "{said}");
    }
}

/// Arrays are verified once. `check` finds damage that happens later.
#[test]
fn arrays_are_compared_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_, new) = small(dir.path(), None, Metric::L2);
    let first = rows(&new[..DIM]);
    let index = Index::open(dir.path()).unwrap();
    let seen = |index: &Index| index.segments[0].arrays.was_verified();
    assert!(!seen(&index));
    index.nearest(first, 1).unwrap();
    assert!(seen(&index));
    // A writer that adds rows reuses the open arrays.
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    writer.index().nearest(first, 1).unwrap();
    let mut adding = writer.add();
    adding.push(rows(&new)).unwrap();
    adding.commit().unwrap();
    writer.remove(&[2]).unwrap();
    assert!(seen(writer.index()));
}

#[test]
#[cfg(target_os = "linux")]
fn many_parts_take_few_mappings_and_few_files_are_opened_again() {
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let dir = quick_dir();
    small(dir.path(), Some(StoredVectors::F32), Metric::L2);
    let new = data(2, 9);
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    let before = mappings();
    for _ in 0..300 {
        let mut adding = writer.add();
        adding.push(rows(&new)).unwrap();
        adding.commit().unwrap();
    }
    let index = Index::open(dir.path()).unwrap();
    assert_eq!((index.segments(), index.len()), (301, 800));
    // Other tests of this process map files at the same time.
    let more = mappings().saturating_sub(before);
    assert!(more < 200, "{more} mappings for {} parts", index.segments());
}
