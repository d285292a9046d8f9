use super::*;
use crate::Hasher;
use crate::search::codes::Codes;
use crate::{Config, ExactSearch, Hit, IdSet, Metric, Ranking, Rows, Search, Sketcher};
use std::collections::BTreeMap;

pub(super) const DIM: usize = 20;

/// Rows of small whole numbers, so that ties are frequent and half precision is exact.
pub(super) fn data(rows: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..rows * DIM)
        .map(|i| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) % (3 + 40 / (1 + i as u64 % DIM as u64))) as f32
        })
        .collect()
}

pub(super) fn hasher(metric: Metric) -> Hasher {
    let rows = data(800, 1);
    let config = Config::new(DIM).sketch_rows(40).metric(metric);
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(&rows, DIM).unwrap()).unwrap();
    sketcher.finish().hasher(13).unwrap()
}

pub(super) fn rows(data: &[f32]) -> Rows<'_, f32> {
    Rows::new(data, DIM).unwrap()
}

/// The reference: a map from ids to rows, which are encoded and searched as one set of codes.
struct Oracle<'a> {
    hasher: &'a Hasher,
    rows: BTreeMap<u64, Vec<f32>>,
}

impl Oracle<'_> {
    fn codes(&self, among: Option<&IdSet>) -> (Vec<u64>, Codes) {
        let chosen = self.rows.iter().filter(|(id, _)| among.is_none_or(|set| set.contains(**id)));
        let (ids, values): (Vec<u64>, Vec<&[f32]>) =
            chosen.map(|(id, row)| (*id, &row[..])).unzip();
        (ids, self.hasher.encode_with_factors(rows(&values.concat())).unwrap())
    }

    fn agrees(&self, index: &Index, asked: &[f32], among: Option<&IdSet>) {
        let queries = self.hasher.queries(rows(asked)).unwrap();
        let (ids, codes) = self.codes(among);
        if among.is_none() {
            assert_eq!(index.len(), ids.len() as u64);
        }
        let by_ranking = [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated]
            .into_iter()
            .flat_map(|ranking| [0, 1, 7, 5000].map(|k| Search::nearest(k).ranking(ranking)));
        let by_radius = [0, 3, 13, 99].into_iter().map(Search::within);
        let both = [Search::nearest(4).radius(3)];
        for search in by_ranking.chain(by_radius).chain(both) {
            let want = codes.search(&queries, &search).unwrap();
            let filtered = Search { filter: among, ..search.clone() };
            let got = index.search(rows(asked), &filtered).unwrap();
            for (want, got) in want.iter().zip(&got) {
                let named = |hit: &Hit| Hit { id: ids[hit.id as usize], ..*hit };
                let want: Vec<_> = want.iter().map(named).collect();
                assert_eq!(*got, want, "{search:?}");
            }
        }
    }
}

/// A random sequence of changes. After each one, the index and a newly opened one return the hits of the reference.
#[test]
fn after_any_changes_an_index_answers_as_a_map_from_ids_to_rows() {
    let hasher = hasher(Metric::L2);
    for seed in 0..4u64 {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let mut writer = IndexWriter::create(&folder, &hasher, true, None).unwrap();
        writer.add().commit().unwrap();
        let mut oracle = Oracle { hasher: &hasher, rows: BTreeMap::new() };
        let (asked, mut next) = (data(3, 99), 0u64);
        let mut state = seed + 1;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..14 {
            match draw(6) {
                0 | 1 => {
                    let new = data(1 + draw(60) as usize, 7 * seed + step);
                    let mut adding = writer.add();
                    // Two batches give the same result as one.
                    let half = new.len() / DIM / 2 * DIM;
                    adding.push(rows(&new[..half])).unwrap();
                    adding.push(rows(&new[half..])).unwrap();
                    assert_eq!(adding.commit().unwrap(), 0);
                    for row in new.chunks(DIM) {
                        oracle.rows.insert(next, row.to_vec());
                        next += 1;
                    }
                }
                2 | 3 => {
                    let count = 1 + draw(40) as usize;
                    let new = data(count, 11 * seed + step);
                    let replace = draw(2) == 0;
                    let mut ids: Vec<u64> = Vec::new();
                    while ids.len() < count {
                        let id = draw(400);
                        if !ids.contains(&id) && (replace || !oracle.rows.contains_key(&id)) {
                            ids.push(id);
                        }
                    }
                    let there = ids.iter().filter(|id| oracle.rows.contains_key(id)).count();
                    let mut adding = writer.add().replace(replace);
                    adding.push_with_ids(rows(&new), &ids).unwrap();
                    assert_eq!(adding.commit().unwrap(), there as u64);
                    for (id, row) in ids.iter().zip(new.chunks(DIM)) {
                        oracle.rows.insert(*id, row.to_vec());
                        next = next.max(id + 1);
                    }
                }
                4 => {
                    let ids: Vec<u64> = (0..draw(50)).map(|_| draw(500)).collect();
                    let there = ids.iter().filter(|id| oracle.rows.remove(id).is_some()).count();
                    assert_eq!(writer.remove(&ids).unwrap(), there as u64);
                }
                _ => {
                    writer.compact().unwrap();
                    assert!(writer.index().segments() <= 1 && writer.index().removed() == 0);
                }
            }
            let among: IdSet = (0..300).step_by(3).chain(1000..1010).collect();
            for index in [writer.index(), &Index::open(&folder).unwrap()] {
                oracle.agrees(index, &asked, None);
                oracle.agrees(index, &asked, Some(&among));
                oracle.agrees(index, &asked, Some(&IdSet::new()));
                assert!(
                    (0..500).all(|id| index.contains(id).unwrap() == oracle.rows.contains_key(&id))
                );
                index.check().unwrap();
            }
        }
    }
}

/// Writes an index of 200 rows with ids 0, 2, 4, ..
pub(super) fn small(
    folder: &Path,
    vectors: Option<StoredVectors>,
    metric: Metric,
) -> (Hasher, Vec<f32>) {
    let (hasher, new) = (hasher(metric), data(200, 5));
    let mut writer = IndexWriter::create(folder, &hasher, true, vectors).unwrap();
    let mut adding = writer.add();
    let ids: Vec<u64> = (0..400).step_by(2).collect();
    adding.push_with_ids(rows(&new), &ids).unwrap();
    adding.commit().unwrap();
    (hasher, new)
}

#[test]
fn readers_go_on_while_a_writer_adds_removes_and_compacts() {
    let dir = tempfile::tempdir().unwrap();
    let (_, new) = small(dir.path(), None, Metric::L2);
    let ask = |index: &Index| index.nearest(rows(&new[..3 * DIM]), 9).unwrap();
    let reader = Index::open(dir.path()).unwrap();
    let before = ask(&reader);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut writer = IndexWriter::open(dir.path()).unwrap();
            for round in 0..20 {
                let mut adding = writer.add();
                adding.push(rows(&new)).unwrap();
                adding.commit().unwrap();
                writer.remove(&[4 * round]).unwrap();
                writer.compact().unwrap();
            }
        });
        let mut opened = 0;
        while !changes.is_finished() || opened < 3 {
            // An index that is opened at any moment is in one of the committed states.
            let index = Index::open(dir.path()).unwrap();
            index.check().unwrap();
            let round = index.generation().saturating_sub(1) / 3;
            let (added, removed) = ((index.generation() + 1) / 3 * 200, index.generation() / 3);
            assert_eq!(index.len(), 200 + added - removed, "round {round}");
            assert_eq!(ask(&reader), before);
            opened += 1;
        }
    });
    assert_eq!(ask(&reader), before);
    assert_eq!(Index::open(dir.path()).unwrap().len(), 200 + 20 * 199);
}

#[test]
fn one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path(), None, Metric::L2);
    let first = IndexWriter::open(dir.path()).unwrap();
    let said = IndexWriter::open(dir.path()).unwrap_err().to_string();
    assert!(said.contains("another process is changing this index"), "{said}");
    drop(first);
    IndexWriter::open(dir.path()).unwrap();
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn ids_that_are_there_or_come_twice_are_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, new) = small(dir.path(), None, Metric::L2);
    let tidy = names(dir.path());
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    let cases: [(&[u64], u64); 4] =
        [(&[401, 6, 403], 6), (&[7, 401, 7], 7), (&[401, 401], 401), (&[9, 8], 8)];
    for (ids, id) in cases {
        let mut adding = writer.add();
        adding.push_with_ids(rows(&new[..ids.len() * DIM]), ids).unwrap();
        let refused = adding.commit().unwrap_err();
        assert!(matches!(refused, Error::DuplicateId { id: got } if got == id), "{refused}");
        assert_eq!(names(dir.path()), tidy);
        assert_eq!(writer.index().len(), 200);
    }
    // Rejected rows and dropped additions leave no files.
    let mut adding = writer.add();
    adding.push(rows(&new)).unwrap();
    assert!(adding.push(Rows::new(&[f32::NAN; DIM], DIM).unwrap()).is_err());
    assert!(adding.push_with_ids(rows(&new), &[1]).is_err());
    drop(adding);
    assert_eq!(names(dir.path()), tidy);
    // A removed id can be added again. After the largest id there are no automatic ids.
    writer.remove(&[6]).unwrap();
    let mut adding = writer.add();
    adding.push_with_ids(rows(&new[..2 * DIM]), &[u64::MAX, 6]).unwrap();
    assert!(adding.push(rows(&new)).is_err());
    adding.commit().unwrap();
    let said = writer.add().push(rows(&new)).unwrap_err().to_string();
    let facts = ["numbered on from the largest id", "18446744073709551615", "give ids"];
    assert!(facts.iter().all(|fact| said.contains(fact)), "{said}");
    // When it is removed again, rows are numbered on from the largest that is there.
    writer.remove(&[u64::MAX]).unwrap();
    let largest = (0..1000).rev().find(|id| writer.index().contains(*id).unwrap()).unwrap();
    for next in 1..=2 {
        let mut adding = writer.add();
        adding.push(rows(&new[..DIM])).unwrap();
        adding.commit().unwrap();
        assert!(writer.index().contains(largest + next).unwrap());
        assert!(!writer.index().contains(largest + next + 1).unwrap());
    }
    let mut adding = writer.add();
    adding.push_with_ids(rows(&new[..DIM]), &[u64::MAX]).unwrap();
    adding.commit().unwrap();
    assert!(writer.index().contains(u64::MAX).unwrap() && writer.index().contains(6).unwrap());
    writer.compact().unwrap();
    assert!(Index::open(dir.path()).unwrap().contains(u64::MAX).unwrap());
}

#[test]
fn kept_vectors_put_candidates_in_exact_order() {
    for (stored, metric) in [
        (StoredVectors::F32, Metric::L2),
        (StoredVectors::F16, Metric::L2),
        (StoredVectors::F32, Metric::Cosine),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (_, new) = small(dir.path(), Some(stored), metric);
        let asked = data(4, 8);
        let index = Index::open(dir.path()).unwrap();
        let all = Search::nearest(12).ranking(Ranking::Hamming).rerank(100);
        let got = index.search(rows(&asked), &all).unwrap();
        let mut exact = ExactSearch::new(rows(&asked), 12, metric).unwrap();
        exact.push(rows(&new)).unwrap();
        for (got, want) in got.iter().zip(exact.finish()) {
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(*got, Hit { id: 2 * want.id, ..*want });
            }
        }
        // By default candidates are re-ranked, so the distances are exact.
        let (few, all) = (index.nearest(rows(&asked), 3).unwrap(), index.len() as usize);
        let every = Search::nearest(all).ranking(Ranking::Hamming).rerank(1);
        for (few, every) in few.iter().zip(index.search(rows(&asked), &every).unwrap()) {
            assert!(few.len() == 3 && few.iter().all(|hit| every.contains(hit)));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, new) = small(dir.path(), None, Metric::L2);
    let index = Index::open(dir.path()).unwrap();
    let said =
        index.search(rows(&new[..DIM]), &Search::nearest(3).rerank(2)).unwrap_err().to_string();
    assert!(said.contains("stores no vectors"), "{said}");
    // Values above the range of half precision are rejected, with row and column.
    let (dir, hasher) = (tempfile::tempdir().unwrap(), hasher(Metric::L2));
    let mut writer =
        IndexWriter::create(dir.path(), &hasher, false, Some(StoredVectors::F16)).unwrap();
    let mut large = data(2, 1);
    large[DIM + 3] = 70_000.0;
    let refused = writer.add().push(rows(&large)).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { row: 1, column: 3, .. }), "{refused}");
}

#[test]
fn an_empty_index_answers_with_nothing() {
    let (dir, hasher) = (tempfile::tempdir().unwrap(), hasher(Metric::L2));
    let mut writer = IndexWriter::create(dir.path(), &hasher, false, None).unwrap();
    writer.add().commit().unwrap();
    let index = Index::open(dir.path()).unwrap();
    assert!(index.is_empty());
    for ranking in [Ranking::Hamming, Ranking::Asymmetric] {
        let search = Search::nearest(3).ranking(ranking);
        assert_eq!(index.search(rows(&data(2, 1)), &search).unwrap(), vec![vec![]; 2]);
    }
    assert_eq!(index.search(rows(&data(2, 1)), &Search::within(64)).unwrap(), vec![vec![]; 2]);
    assert_eq!(writer.remove(&[1]).unwrap(), 0);
    writer.compact().unwrap();
    // Filled, then emptied.
    let mut adding = writer.add();
    adding.push(rows(&data(3, 1))).unwrap();
    adding.commit().unwrap();
    assert_eq!(writer.remove(&[0, 1, 2, 2]).unwrap(), 3);
    writer.compact().unwrap();
    assert_eq!((writer.index().segments(), writer.index().len()), (0, 0));
    // Automatic ids are not reused.
    let mut adding = writer.add();
    adding.push(rows(&data(1, 1))).unwrap();
    adding.commit().unwrap();
    assert!(writer.index().contains(3).unwrap() && !writer.index().contains(0).unwrap());
}
