//! Tests of an index with several versions: the hits are those of each row's own model, changes are atomic, and damage is
//! detected.

use super::manifest::{Manifest, VersionFacts};
use super::safety_tests::{Change, each_step_of};
use super::tests::{DIM, data, hasher, names, rows, small};
use super::*;
use crate::search::options::keep_nearest;
use crate::{Config, ExactSearch, Hit, IdSet, Metric, Ranking, Rows, Search, Sketcher};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Models of other kinds and widths than the first one, learned from other rows.
fn models() -> Vec<Model> {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(fit_models).clone()
}

fn fit_models() -> Vec<Model> {
    let sketch = |seed, scale: f32| {
        let values: Vec<f32> = data(1100, seed).iter().map(|x| x * scale - 3.0).collect();
        let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(40).seed(seed)).unwrap();
        sketcher.push(rows(&values)).unwrap();
        sketcher.finish()
    };
    vec![
        hasher(Metric::L2).into(),
        sketch(21, 1.5).hasher(13).unwrap().into(),
        sketch(22, 0.7).hasher(20).unwrap().into(),
        sketch(23, 1.0).quantizer(8).unwrap().into(),
        sketch(24, 2.0).hasher(13).unwrap().into(),
    ]
}

/// The reference: for each id its row, the number of the model that encoded it, and whether the next version leaves it.
#[derive(Default)]
struct Oracle {
    rows: BTreeMap<u64, (Vec<f32>, usize, bool)>,
}

impl Oracle {
    /// Every row's distance by its own model, sorted.
    fn by_codes(&self, models: &[Model], asked: &[f32], search: &Search<'_>) -> Vec<Vec<Hit>> {
        let mut all = vec![Vec::new(); asked.len() / DIM];
        for (number, model) in models.iter().enumerate() {
            let of_model = self.rows.iter().filter(|(_, row)| row.1 == number);
            let (ids, values): (Vec<u64>, Vec<&[f32]>) =
                of_model.map(|(id, row)| (*id, &row.0[..])).unzip();
            if ids.is_empty() {
                continue;
            }
            let codes = model.encode_with_factors(rows(&values.concat())).unwrap();
            let queries = model.queries(rows(asked)).unwrap();
            let every = Search { k: usize::MAX, filter: None, ..search.clone() };
            for (all, found) in all.iter_mut().zip(codes.search(&queries, &every).unwrap()) {
                let with_id = found.iter().map(|hit| Hit { id: ids[hit.id as usize], ..*hit });
                all.extend(with_id.filter(|hit| search.filter.is_none_or(|s| s.contains(hit.id))));
            }
        }
        all.iter_mut().for_each(|hits| keep_nearest(hits, search.k));
        all
    }

    fn live(&self) -> usize {
        self.rows.values().map(|row| row.1).collect::<BTreeSet<_>>().len()
    }

    fn agrees(&self, index: &Index, models: &[Model], asked: &[f32], among: Option<&IdSet>) {
        for k in [0, 1, 7, 5000] {
            let search = Search { filter: among, ..Search::nearest(k) };
            let search = search.ranking(Ranking::Estimated).rerank(0);
            let want = self.by_codes(models, asked, &Search { rerank: None, ..search.clone() });
            for threads in [1, 3] {
                let pool = Pool::new(threads).unwrap();
                let got = pool.install(|| index.search(rows(asked), &search)).unwrap();
                assert_eq!(got, want, "k = {k}, {threads} threads");
            }
        }
        let bits = !self.rows.values().any(|row| row.1 == 3);
        for search in [Search::nearest(9).ranking(Ranking::Hamming), Search::within(4)] {
            let search = Search { filter: among, ..search }.rerank(0);
            if !bits {
                continue;
            }
            let want = self.by_codes(models, asked, &Search { rerank: None, ..search.clone() });
            let got = index.search(rows(asked), &search);
            match got {
                Ok(got) => assert!(self.live() <= 1 && got == want),
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains("several versions"), "{said}");
                    assert!(said.contains("estimated") && self.live() > 1, "{said}");
                }
            }
            assert_eq!(index.search(rows(asked), &search.mix_versions()).unwrap(), want);
        }
        // All rows are candidates, so the hits are those of an exact search.
        let rankings = [Ranking::Estimated, Ranking::Hamming];
        for ranking in rankings.into_iter().filter(|ranking| bits || *ranking != Ranking::Hamming) {
            let all = Search { filter: among, ..Search::nearest(6) }.ranking(ranking).rerank(1000);
            let mut exact = ExactSearch::new(rows(asked), 6, Metric::L2).unwrap();
            let mut ids = Vec::new();
            for (id, row) in &self.rows {
                if among.is_none_or(|set| set.contains(*id)) {
                    exact.push(rows(&row.0)).unwrap();
                    ids.push(*id);
                }
            }
            let mut want = exact.finish();
            want.iter_mut().flatten().for_each(|hit| hit.id = ids[hit.id as usize]);
            assert_eq!(index.search(rows(asked), &all).unwrap(), want, "{ranking}");
        }
    }
}

/// A random sequence of changes, new versions among them. After each one, the index and a newly opened one return for each
/// row the distance by its own model.
#[test]
fn after_any_changes_each_row_is_found_by_its_own_model() {
    let models = models();
    for seed in 0..4u64 {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("index");
        let stored = [StoredVectors::F32, StoredVectors::F16][seed as usize % 2];
        let mut writer = IndexWriter::create(&folder, &models[0], true, Some(stored)).unwrap();
        let (mut oracle, mut newest, mut next, mut encoded) = (Oracle::default(), 0, 0u64, 0);
        let (asked, mut state) = (data(3, 99), seed + 1);
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..18u64 {
            match if step == 0 { 0 } else { draw(7) } {
                0..=2 => {
                    let new = data(1 + draw(50) as usize, 7 * seed + step);
                    let mut adding = writer.add();
                    adding.push(rows(&new)).unwrap();
                    adding.commit().unwrap();
                    for row in new.chunks(DIM) {
                        oracle.rows.insert(next, (row.to_vec(), newest, step == 0));
                        next += 1;
                    }
                }
                3 => {
                    let ids: Vec<u64> = (0..draw(30)).map(|_| draw(next)).collect();
                    let there = ids.iter().filter(|id| oracle.rows.remove(id).is_some()).count();
                    assert_eq!(writer.remove(&ids).unwrap(), there as u64);
                }
                4 | 5 if newest + 1 < models.len() => {
                    newest += 1;
                    let mut again = 0;
                    for row in oracle.rows.values_mut().filter(|row| !row.2) {
                        (row.1, row.2) = (newest, true);
                        again += 1;
                    }
                    let refresh = writer.refresh(&models[newest]).unwrap();
                    assert_eq!((refresh.rows(), refresh.missing()), (again, 0));
                    assert_eq!(refresh.commit().unwrap(), again);
                    encoded += again;
                }
                6 => {
                    let fold = writer.fold(1);
                    let again = fold.rows();
                    assert_eq!(fold.commit().unwrap(), again);
                    for row in oracle.rows.values_mut().filter(|row| row.1 != newest) {
                        (row.1, row.2) = (newest, true);
                    }
                }
                _ => {
                    if writer.index().versions().len() == 1 {
                        let settled = writer.index().segments.iter().all(|s| s.facts.settled);
                        oracle.rows.values_mut().for_each(|row| row.2 = settled);
                    }
                    writer.compact().unwrap();
                    let groups: BTreeSet<(usize, bool)> =
                        oracle.rows.values().map(|row| (row.1, row.2)).collect();
                    assert_eq!(writer.index().segments(), groups.len());
                    assert_eq!(writer.index().removed(), 0);
                }
            }
            let among: IdSet = (0..300).step_by(3).chain(1000..1010).collect();
            for index in [writer.index(), &Index::open(&folder).unwrap()] {
                oracle.agrees(index, &models, &asked, None);
                oracle.agrees(index, &models, &asked, Some(&among));
                index.check().unwrap();
                assert_eq!(index.model().id(), models[newest].id());
                assert_eq!(index.other_files().unwrap(), [""; 0]);
                for version in index.versions() {
                    let number = models.iter().position(|m| m.id() == version.model.id()).unwrap();
                    let of = oracle.rows.values().filter(|row| row.1 == number);
                    assert_eq!(version.rows, of.clone().count() as u64);
                    assert_eq!(version.rows_since, of.filter(|row| !row.2).count() as u64);
                }
                assert!(index.versions().iter().map(|v| v.rows).sum::<u64>() == index.len());
            }
        }
        // A row is encoded when it comes, and at most once more by a new version.
        assert!(encoded <= next, "{encoded} of {next} rows were encoded again");
    }
}

/// Rows whose vectors are not stored are encoded from a source, or keep their model.
#[test]
fn rows_without_stored_vectors_are_encoded_from_a_source_or_keep_their_codes() {
    let (models, values) = (models(), data(90, 5));
    let row = |i: usize| rows(&values[i * DIM..(i + 1) * DIM]);
    let dir = tempfile::tempdir().unwrap();
    for named in [false, true] {
        let folder = dir.path().join(if named { "names" } else { "numbers" });
        let mut writer = IndexWriter::create(&folder, &models[0], true, None).unwrap();
        let ids: Vec<u64> = (0..90).collect();
        let text: Vec<String> = ids.iter().map(|id| format!("row {id}")).collect();
        for range in [0..40usize, 40..60, 60..90] {
            let mut adding = writer.add();
            let part = rows(&values[range.start * DIM..range.end * DIM]);
            match named {
                true => adding.push_with_names(part, &text[range]).unwrap(),
                false => adding.push_with_ids(part, &ids[range]).unwrap(),
            }
            adding.commit().unwrap();
        }
        writer.remove_names(&["row 70"]).ok();
        writer.remove(&[70]).ok();
        let refused = writer.refresh(&models[1]).unwrap().commit().unwrap_err().to_string();
        let facts = ["49 rows", "stores none", "--source", "--keep-codes"];
        assert!(facts.iter().all(|fact| refused.contains(fact)), "{refused}");
        // All rows from 50 on are pushed, in another order, with rows that need not be encoded again.
        let mut refresh = writer.refresh(&models[1]).unwrap();
        for i in (50..90).rev().chain(0..9) {
            match named {
                true => refresh.push_with_names(row(i), &text[i..=i]).unwrap(),
                false => refresh.push_with_ids(row(i), &ids[i..=i]).unwrap(),
            }
        }
        assert_eq!((refresh.rows(), refresh.missing()), (49, 10));
        assert_eq!(refresh.keep_missing(true).commit().unwrap(), 39);
        for compact in [false, true] {
            if compact {
                writer.compact().unwrap();
            }
            let mut oracle = Oracle::default();
            for i in (0..90usize).filter(|i| *i != 70) {
                let row = values[i * DIM..(i + 1) * DIM].to_vec();
                oracle.rows.insert(i as u64, (row, usize::from(i >= 50), false));
            }
            let search = Search::nearest(200).ranking(Ranking::Estimated);
            let want = oracle.by_codes(&models, &values[..2 * DIM], &search);
            let index = Index::open(&folder).unwrap();
            let got = index.search(rows(&values[..2 * DIM]), &search).unwrap();
            assert_eq!(got, want);
            for hit in &got[0] {
                let name = named.then(|| format!("row {}", hit.id));
                assert_eq!(index.name(hit.id).unwrap(), name.as_deref());
            }
            let counts: Vec<_> = index.versions().iter().map(|v| (v.rows, v.rows_since)).collect();
            assert_eq!(counts, [(50, 10), (39, 0)]);
            index.check().unwrap();
        }
        // The same with the two rows after it: compacting does not mix them with those that stay.
        let mut fold = writer.fold(1);
        for i in 0..90 {
            match named {
                true => fold.push_with_names(row(i), &text[i..=i]).unwrap(),
                false => fold.push_with_ids(row(i), &ids[i..=i]).unwrap(),
            }
        }
        assert_eq!(fold.commit().unwrap(), 50);
        assert_eq!(writer.index().versions().len(), 1);
        assert!(!folder.join(MODEL).exists(), "the first model is not used any more");
        assert_eq!(Index::open(&folder).unwrap().len(), 89);
    }
}

#[test]
fn models_that_do_not_fit_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path(), None, Metric::L2);
    let tidy = names(dir.path());
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    let refused = |writer: &mut IndexWriter, model: Model| {
        writer.refresh(model).map(drop).unwrap_err().to_string()
    };
    let said = refused(&mut writer, hasher(Metric::Cosine).into());
    assert!(said.contains("cosine") && said.contains("l2"), "{said}");
    let said = refused(&mut writer, hasher(Metric::L2).into());
    assert!(said.contains("is its newest model already"), "{said}");
    let values = data(400, 3);
    let sketch = |dim: usize, reservoir: usize| {
        let config = Config::new(dim).sketch_rows(8).reservoir_rows(reservoir);
        let mut sketcher = Sketcher::new(config).unwrap();
        sketcher.push(Rows::new(&values, dim).unwrap()).unwrap();
        sketcher.finish().hasher(4).unwrap()
    };
    let said = refused(&mut writer, sketch(10, 100).into());
    assert!(said.contains("10 values") && said.contains("have 20"), "{said}");
    let said = refused(&mut writer, sketch(20, 0).into());
    assert!(said.contains("reservoir"), "{said}");
    assert_eq!(names(dir.path()), tidy);
    // Without factors and vectors, rows of two models could not be compared.
    let folder = dir.path().join("plain");
    let mut writer = IndexWriter::create(&folder, hasher(Metric::L2), false, None).unwrap();
    let said = refused(&mut writer, models()[1].clone());
    assert!(said.contains("neither factors nor vectors"), "{said}");
}

const CHANGES: [(&str, Change); 7] = [
    ("add and learn", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        let mut adding = writer.add();
        let new = data(30, 3);
        adding.push(rows(&new))?;
        let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(8))?;
        sketcher.push(rows(&new))?;
        adding.learned(&sketcher).commit().map(drop)
    }),
    ("refresh", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        // The change is made twice, with another model.
        let known = writer.index().model().id();
        let model = models().into_iter().skip(2).find(|model| model.id() != known);
        writer.refresh(model.expect("two models"))?.commit().map(drop)
    }),
    ("fold", |folder| IndexWriter::open(folder)?.fold(1).commit().map(drop)),
    ("add", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        let mut adding = writer.add();
        adding.push(rows(&data(30, 3)))?;
        adding.commit().map(drop)
    }),
    ("replace", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        let mut adding = writer.add().replace(true);
        adding.push_with_ids(rows(&data(3, 4)), &[12, 4, 1001])?;
        adding.commit().map(drop)
    }),
    ("compact", |folder| IndexWriter::open(folder)?.compact()),
    ("two changes", |folder| {
        let mut writer = IndexWriter::open(folder)?;
        writer.remove(&[20])?;
        writer.fold(1).commit()?;
        Ok(())
    }),
];

/// An index with rows of three versions, and rows since the last one.
fn versioned(folder: &Path, stored: Option<StoredVectors>) {
    small(folder, stored, Metric::L2);
    let mut writer = IndexWriter::open(folder).unwrap();
    for (model, seed) in models()[1..3].iter().zip(60..) {
        let mut adding = writer.add();
        let (new, first) = (data(40, seed), 1000 + 100 * seed);
        let ids: Vec<u64> = (first..first + 40).collect();
        adding.push_with_ids(rows(&new), &ids).unwrap();
        adding.commit().unwrap();
        let mut refresh = writer.refresh(model).unwrap();
        refresh.push_with_ids(rows(&new), &ids).unwrap();
        refresh.commit().unwrap();
    }
    let (mut adding, new) = (writer.add(), data(10, 70));
    let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(8)).unwrap();
    sketcher.push(rows(&new)).unwrap();
    adding.push(rows(&new)).unwrap();
    adding.learned(&sketcher).commit().unwrap();
    writer.remove(&[2, 6, 7003]).unwrap();
}

#[test]
fn whatever_step_fails_or_is_the_last_versions_are_as_before_or_as_after() {
    each_step_of(&CHANGES, "two changes", |base| versioned(base, Some(StoredVectors::F32)));
}

/// Changes bytes of every file. A search returns the right hits or an error with the path of the file, and damaged rows are
/// not encoded again.
#[test]
fn damage_in_any_version_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    versioned(dir.path(), Some(StoredVectors::F32));
    let asked = data(2, 8);
    let ask = |index: &Index| {
        let search = Search::nearest(20).ranking(Ranking::Estimated).rerank(3);
        index.search(rows(&asked), &search).map_err(|error| error.to_string())
    };
    let sound = ask(&Index::open(dir.path()).unwrap()).unwrap();
    let files: Vec<String> = names(dir.path()).into_iter().filter(|name| name != LOCK).collect();
    assert_eq!(files.iter().filter(|name| name.ends_with(MODEL)).count(), 3);
    let mut found_by_search = 0;
    for name in &files {
        let path = dir.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        // A learner is read when it is asked for.
        let open = || Index::open(dir.path()).and_then(|index| index.sketcher());
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let said = open().unwrap_err().to_string();
        assert!(said.contains(name.as_str()), "{name}: {said}");
        std::fs::remove_file(&path).unwrap();
        assert!(open().is_err(), "{name} missing");
        for at in (0..whole.len() - 1).step_by(1 + whole.len() / 23) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&path, &flipped).unwrap();
            let index = match Index::open(dir.path()) {
                Ok(index) => index,
                Err(error) => {
                    assert!(error.to_string().contains(name.as_str()), "{name} at {at}: {error}");
                    continue;
                }
            };
            match ask(&index) {
                Ok(found) => assert_eq!(found, sound, "{name} at {at}"),
                // A damaged checksum is reported for the array it belongs to.
                Err(said) if name.ends_with(".checksums.npy") => {
                    assert!(said.contains(".npy: its checksum"), "{name} at {at}: {said}");
                }
                Err(said) => {
                    found_by_search += 1;
                    assert!(said.contains(name.as_str()), "{name} at {at}: {said}");
                }
            }
            let said = index.check().unwrap_err().to_string();
            assert!(said.contains(name.as_str()), "{name} at {at}: {said}");
            // Damaged rows are not encoded again.
            let mut writer = IndexWriter::open(dir.path()).unwrap();
            let of_newest =
                writer.index().segments.iter().any(|s| {
                    s.is_of(writer.index().newest()) && s.files().any(|file| file == *name)
                });
            if !of_newest && !name.ends_with(".sketcher") {
                let said = writer.fold(1).commit().unwrap_err().to_string();
                assert!(said.contains(name.as_str()), "{name} at {at}: {said}");
            }
            assert!(std::fs::read(&path).unwrap() == flipped);
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(found_by_search > 50, "{found_by_search}");
    Index::open(dir.path()).unwrap().check().unwrap();
}

/// Manifests that contradict themselves, with checksums that fit.
#[test]
fn hostile_lists_of_versions_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    versioned(dir.path(), None);
    let sound = Manifest::load(dir.path()).unwrap();
    assert_eq!(sound.versions.len(), 3);
    type Edit = fn(&mut Manifest);
    let cases: [(Edit, &str); 8] = [
        (|m| m.versions.truncate(2), "newest version"),
        (|m| m.versions.swap(0, 2), "newest version"),
        (|m| m.versions.clear(), "but the index was built with model"),
        (|m| m.segments[0].model = None, "does not list the model of segment"),
        (|m| m.segments[1].model = Some("f".repeat(32)), "does not list the model of segment"),
        (|m| m.versions[1].number = Some(999_999), "999999.model.frosh"),
        (|m| m.versions[1].number = m.versions[2].number, "but the index was built with model"),
        (|m| m.segments[0].model = m.segments[2].model.clone(), "000001."),
    ];
    for (edit, why) in cases {
        let mut manifest = sound.clone();
        edit(&mut manifest);
        manifest.save(dir.path(), "000099.index.json").unwrap();
        let said = Index::open(dir.path()).unwrap_err().to_string();
        assert!(said.contains(why), "{why}: {said}");
    }
    // A model of another metric in the list.
    let mut manifest = sound.clone();
    let other: Model = hasher(Metric::Cosine).into();
    other.save(dir.path().join("000098.model.frosh")).unwrap();
    let facts = VersionFacts { model: other.id().to_string(), number: Some(98), sample_map: None };
    manifest.versions.insert(1, facts);
    manifest.save(dir.path(), "000099.index.json").unwrap();
    let said = Index::open(dir.path()).unwrap_err().to_string();
    assert!(said.contains("000098.model.frosh") && said.contains("cosine"), "{said}");
    sound.save(dir.path(), "000099.index.json").unwrap();
    Index::open(dir.path()).unwrap().check().unwrap();
}

/// Only an index with several models needs a newer program.
#[test]
fn the_worst_versions_are_folded_first_and_an_index_of_one_model_stays_readable_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let version = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join(manifest::NAME)).unwrap();
        (1..=3).find(|number| text.contains(&format!("\"version\": {number},"))).unwrap()
    };
    small(dir.path(), Some(StoredVectors::F32), Metric::L2);
    assert_eq!(version(dir.path()), 1);
    let (models, mut writer) = (models(), IndexWriter::open(dir.path()).unwrap());
    for model in &models[1..] {
        let mut adding = writer.add();
        adding.push(rows(&data(20, model.seed()))).unwrap();
        adding.commit().unwrap();
        writer.refresh(model).unwrap().commit().unwrap();
    }
    assert_eq!(version(dir.path()), 3);
    assert_eq!(writer.index().versions().len(), 5);
    // The third is the worst, the first was not measured.
    let mut again = writer.index().versions().iter().map(|v| v.model.id()).collect::<Vec<_>>();
    let measured = again.drain(1..).zip([0.5, 0.25, 0.75, 0.5]).collect::<Vec<_>>();
    let mut adding = writer.add();
    adding.push(rows(&data(20, 80))).unwrap();
    adding.commit().unwrap();
    let mut last = Sketcher::new(Config::new(DIM).sketch_rows(40).seed(5)).unwrap();
    last.push(rows(&data(500, 81))).unwrap();
    let last = last.finish().hasher(13).unwrap();
    writer.refresh(&last).unwrap().measured(measured).commit().unwrap();
    let left = |writer: &mut IndexWriter, most| {
        writer.fold(most).commit().unwrap();
        writer.index().versions().iter().map(|v| v.model.id()).collect::<Vec<_>>()
    };
    let id = |number: usize| models[number].id();
    assert_eq!(left(&mut writer, 6).len(), 6);
    assert_eq!(left(&mut writer, 5), [id(1), id(2), id(3), id(4), last.id()]);
    assert_eq!(left(&mut writer, 4), [id(1), id(3), id(4), last.id()]);
    assert_eq!(left(&mut writer, 2), [id(3), last.id()]);
    let map = |writer: &IndexWriter| writer.index().versions()[0].sample_map;
    assert_eq!(map(&writer), Some(0.75));
    assert_eq!(left(&mut writer, 0), [last.id()]);
    assert_eq!(writer.index().len(), 300);
}

/// A learner is saved with the rows in one change, continues bit for bit, and goes through all other changes.
#[test]
fn a_learner_is_saved_with_the_rows_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    small(dir.path(), Some(StoredVectors::F16), Metric::L2);
    let config = || Config::new(DIM).sketch_rows(40).seed(3);
    let mut all = Sketcher::new(config()).unwrap();
    let mut writer = IndexWriter::open(dir.path()).unwrap();
    assert!(writer.index().sketcher().unwrap().is_none());
    // The stored vectors first: small whole numbers, which half precision has.
    let mut first = Sketcher::new(config()).unwrap();
    assert_eq!(writer.index().learn_stored(&mut first).unwrap(), 200);
    all.push(rows(&data(200, 5))).unwrap();
    assert_eq!(first.to_bytes(), all.to_bytes());
    let files = |end: &str| names(dir.path()).iter().filter(|name| name.ends_with(end)).count();
    for round in 0..4u64 {
        let new = data(30 + round as usize, 90 + round);
        all.push(rows(&new)).unwrap();
        let mut sketcher = writer.index().sketcher().unwrap().unwrap_or_else(|| first.clone());
        sketcher.push(rows(&new)).unwrap();
        let mut adding = writer.add();
        adding.push(rows(&new)).unwrap();
        adding.learned(&sketcher).commit().unwrap();
        match round {
            1 => writer.compact().unwrap(),
            2 => drop(writer.refresh(&models()[1]).unwrap().commit().unwrap()),
            _ => drop(writer.remove(&[round]).unwrap()),
        }
        drop(writer);
        writer = IndexWriter::open(dir.path()).unwrap();
        let index = Index::open(dir.path()).unwrap();
        index.check().unwrap();
        assert_eq!(index.sketcher().unwrap().unwrap().to_bytes(), all.to_bytes());
        assert_eq!(index.learned_rows(), Some(all.rows()));
        assert_eq!((files(".sketcher"), index.other_files().unwrap().len()), (1, 0));
    }
    // Damage is found where it is read, and by a check.
    let name = names(dir.path()).into_iter().find(|name| name.ends_with(".sketcher")).unwrap();
    let path = dir.path().join(&name);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let index = Index::open(dir.path()).unwrap();
    assert!(index.sketcher().unwrap_err().to_string().contains(&name));
    assert!(index.check().unwrap_err().to_string().contains(&name));
}
