//! Streams of several runs: against their definition, after bad rows, and resumed. Promises 1, 2, 4 and 5 with runs are
//! tested with those without, in promises.rs, and memory in memory.rs.

mod weighted;

use frosh::{Config, Error, Finished, Method, Pool, RangeRows, Rows, Sketch, Sketcher};
use std::ops::Range;
use std::sync::Mutex;
use weighted::{check, noise, weights};

const DIM: usize = 12;
const METHODS: [Method; 4] = [Method::Frosh, Method::FroshSparse, Method::Osh, Method::Lsh];

fn rows(n: usize, seed: u64) -> Vec<f32> {
    weighted::changing_rows(n, DIM, seed)
}

fn config(method: Method) -> Config {
    Config::new(DIM).sketch_rows(8).method(method).reservoir_rows(40).seed(3)
}

fn on(threads: usize, config: &Config) -> Sketcher {
    Pool::new(threads).unwrap().install(|| Sketcher::new(config.clone())).unwrap()
}

fn serial(config: &Config, data: &[f32]) -> Sketcher {
    let mut sketcher = on(1, config);
    sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
    sketcher
}

/// What can go wrong with a reader: a bad row of the stream, or anything else.
#[derive(Debug)]
enum Failed {
    Row(usize),
    #[allow(dead_code)] // shown by a failing test
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Reads ranges of `data` in batches of `batch` rows.
fn reader(
    data: &[f32],
    batch: usize,
) -> impl Fn(Range<u64>, &mut RangeRows<'_>) -> Result<(), Failed> + Sync {
    move |range, rows| {
        for from in (range.start as usize..range.end as usize).step_by(batch) {
            let to = (from + batch).min(range.end as usize);
            match rows.push(Rows::new(&data[from * DIM..to * DIM], DIM)?) {
                Err(Error::NotFinite { row, .. }) => return Err(Failed::Row(from + row)),
                other => other?,
            }
        }
        Ok(())
    }
}

#[test]
fn a_stream_shorter_than_a_run_is_what_it_was_without_runs() {
    let data = rows(500, 1);
    for method in METHODS {
        let want = serial(&config(method).run_rows(0), &data).finish().to_bytes();
        assert_eq!(serial(&config(method).run_rows(501), &data).finish().to_bytes(), want);
        assert_eq!(serial(&config(method), &data).finish().to_bytes(), want);
        let other = serial(&config(method).run_rows(499), &data).finish();
        if method != Method::Lsh {
            assert_ne!(other.to_bytes(), want, "{method}");
        }
        assert_eq!((other.rows(), other.workers()), (500, &[0][..]));
    }
}

#[test]
fn later_runs_have_randomness_of_their_own() {
    // Two runs of the same rows: with the same signs and samples their sketches would be equal.
    let half = rows(512, 2);
    let data = [&half[..], &half].concat();
    for method in [Method::Frosh, Method::FroshSparse] {
        let config = config(method).block_rows(64).reservoir_rows(0);
        let whole = serial(&config.clone().run_rows(512), &data).finish();
        let (a, b) =
            (serial(&config, &half).finish(), serial(&config.clone().worker(1), &half).finish());
        let same = Sketch::merge([&a, &a]).unwrap();
        let other = Sketch::merge([&a, &b]).unwrap();
        assert_ne!(whole.sketched(), same.sketched(), "{method}");
        assert_ne!(whole.sketched(), other.sketched(), "{method}");
    }
}

#[test]
fn runs_are_those_of_the_weighted_rows_and_their_certificate_holds() {
    let n = 777;
    let data = rows(n, 3);
    for l in [4, 8, 30] {
        for run in [1, 7, 50, 97, 256, 777] {
            let config = config(Method::Osh).sketch_rows(l).run_rows(run);
            let what = format!("l = {l}, runs of {run}");
            check(&serial(&config, &data).finish(), &data, &vec![1.0; n], &what);
            for half_life in [40, 300, 5000] {
                let config = config.clone().half_life(half_life).clock(11);
                let sketch = serial(&config, &data).finish();
                let weights = weights(n, run as usize, l / 2, half_life, 0);
                check(&sketch, &data, &weights, &format!("{what}, half-life {half_life}"));
                assert_eq!(sketch.clock(), 11 + n as u64);
            }
        }
    }
}

#[test]
fn streams_of_several_runs_merge_with_each_other() {
    let counts = [500usize, 230, 61];
    let parts: Vec<Vec<f32>> = (0u64..).zip(counts).map(|(seed, n)| rows(n, seed + 5)).collect();
    let data = parts.concat();
    for half_life in [None, Some(60), Some(900)] {
        let clocks = [1000u64, 0, 240];
        let sketches: Vec<Sketch> = (0..3)
            .map(|w| {
                let mut config = config(Method::Osh).worker(w as u64).run_rows(50);
                if let Some(rows) = half_life {
                    config = config.half_life(rows).clock(clocks[w]);
                }
                serial(&config, &parts[w]).finish()
            })
            .collect();
        let latest = 1500;
        let weights: Vec<f64> = (0..3)
            .flat_map(|w| match half_life {
                None => vec![1.0; counts[w]],
                Some(rows) => {
                    let age = latest - (clocks[w] + counts[w] as u64);
                    weights(counts[w], 50, 4, rows, age)
                }
            })
            .collect();
        let flat = Sketch::merge(&sketches).unwrap();
        check(&flat, &data, &weights, &format!("{half_life:?}, at once"));
        assert_eq!(flat.workers(), [0, 1, 2]);
        let pair = Sketch::merge([&sketches[2], &sketches[0]]).unwrap();
        let tree = Sketch::merge([&sketches[1], &pair]).unwrap();
        check(&tree, &data, &weights, &format!("{half_life:?}, in a tree"));
    }
}

#[test]
fn after_a_bad_row_the_stream_is_as_if_it_had_ended_before_it() {
    let n = 500;
    let run = 64;
    for method in METHODS {
        let config = config(method).block_rows(16).run_rows(run);
        for bad in [0, 1, 63, 64, 65, 127, 128, 300, 320, 448, 499] {
            let mut data = rows(n, 4);
            let want = if bad == 0 { on(1, &config) } else { serial(&config, &data[..bad * DIM]) };
            data[bad * DIM + 3] = f32::NAN;
            // A later run has a bad row too: it must not be the one that is reported.
            data[(n - 1) * DIM] = f32::INFINITY;
            for threads in [1, 2, 3, 5] {
                let mut sketcher = on(threads, &config);
                match sketcher.push(Rows::new(&data, DIM).unwrap()) {
                    Err(Error::NotFinite { row, .. }) => assert_eq!(row, bad),
                    other => panic!("{other:?}"),
                }
                assert_eq!(
                    sketcher.to_bytes(),
                    want.to_bytes(),
                    "{method}, row {bad}, {threads} threads"
                );
                let mut sketcher = on(threads, &config);
                match sketcher.learn_ranges(n as u64, reader(&data, 11), |_| Ok(())) {
                    Err(Failed::Row(row)) => assert_eq!(row, bad),
                    other => panic!("{other:?}"),
                }
                assert_eq!(sketcher.rows(), bad as u64);
                let (got, want) = (sketcher.sketch(), want.sketch());
                assert_eq!(
                    got.sketched(),
                    want.sketched(),
                    "{method}, row {bad}, {threads} threads"
                );
                assert_eq!(got.mean(), want.mean());
                // And it can go on.
                let good = rows(n, 4);
                sketcher.push(Rows::new(&good[bad * DIM..], DIM).unwrap()).unwrap();
                let whole = serial(&config, &good);
                assert_eq!(sketcher.sketch().sketched(), whole.sketch().sketched());
            }
        }
    }
}

#[test]
fn readers_that_give_too_many_or_too_few_rows_are_refused() {
    let data = rows(300, 5);
    let config = config(Method::Frosh).run_rows(100);
    for more in [false, true] {
        let read = |range: Range<u64>, rows: &mut RangeRows<'_>| {
            let (from, mut to) = (range.start as usize, range.end as usize);
            if from == 100 {
                to = if more { to + 1 } else { to - 1 };
            }
            rows.push(Rows::new(&data[from * DIM..to * DIM], DIM)?)
        };
        let mut sketcher = on(2, &config);
        match sketcher.learn_ranges(300, read, |_| Ok(())) {
            Err(Error::Setting { name, .. }) => {
                assert_eq!(name, if more { "rows" } else { "missing rows" });
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(sketcher.rows(), if more { 100 } else { 199 });
    }
    let wrong = |_, rows: &mut RangeRows<'_>| rows.push(Rows::new(&data[..DIM + 1], DIM + 1)?);
    let error = on(2, &config).learn_ranges(300, wrong, |_| Ok(()));
    assert!(matches!(error, Err(Error::Dimension { expected: DIM, got: 13 })), "{error:?}");
}

#[test]
fn a_saved_copy_of_the_finished_runs_continues_to_the_same_result() {
    let n = 2000;
    let data = rows(n, 6);
    for method in METHODS {
        for half_life in [None, Some(333)] {
            let mut config = config(method).run_rows(100);
            if let Some(rows) = half_life {
                config = config.half_life(rows).clock(5);
            }
            let want = serial(&config, &data).to_bytes();
            for threads in [1, 2, 5] {
                let saved = Mutex::new(Vec::new());
                let done = |finished: &Finished<'_>| {
                    let mut sketcher = finished.sketcher();
                    assert_eq!(sketcher.rows(), finished.rows());
                    assert!(finished.rows() > 250);
                    sketcher.set_note("so far");
                    saved.lock().unwrap().push(sketcher.to_bytes());
                    Ok(())
                };
                // The first rows come as a batch, which ends inside a run.
                let mut sketcher = on(threads, &config);
                sketcher.push(Rows::new(&data[..250 * DIM], DIM).unwrap()).unwrap();
                sketcher.learn_ranges(n as u64 - 250, reader(&data, 17), done).unwrap();
                assert_eq!(sketcher.to_bytes(), want, "{method} {half_life:?} {threads} threads");
                let saved = saved.into_inner().unwrap();
                assert!(!saved.is_empty() && saved.len() <= 18);
                for bytes in saved {
                    let mut resumed = Sketcher::from_bytes(&bytes).unwrap();
                    assert_eq!(resumed.note(), "so far");
                    resumed.set_note("");
                    let at = resumed.rows() as usize;
                    resumed.push(Rows::new(&data[at * DIM..], DIM).unwrap()).unwrap();
                    assert_eq!(resumed.to_bytes(), want, "{method} {half_life:?} from row {at}");
                }
            }
        }
    }
}

#[test]
fn an_error_of_the_callback_ends_the_learning() {
    let data = rows(2000, 7);
    let config = config(Method::Frosh).run_rows(100);
    for threads in [1, 3] {
        let mut sketcher = on(threads, &config);
        let full = |_: &Finished<'_>| Err(Failed::Other(Error::Empty));
        assert!(sketcher.learn_ranges(2000, reader(&data, 50), full).is_err());
        // Complete runs stay, and the rest can be learned.
        let at = sketcher.rows() as usize;
        assert!((100..2000).contains(&at) && at.is_multiple_of(100), "{at}");
        sketcher.push(Rows::new(&data[at * DIM..], DIM).unwrap()).unwrap();
        let want = serial(&config, &data).sketch();
        assert_eq!(sketcher.sketch().sketched(), want.sketched());
    }
}

#[test]
fn damaged_states_are_refused() {
    let bytes = serial(&config(Method::Frosh).run_rows(100), &rows(750, 8)).to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(r#""version":"3""#) && text.contains(r#""run_rows":"100""#));
    for at in (0..bytes.len()).step_by(101) {
        assert!(Sketcher::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        let mut other = bytes.clone();
        other[at] ^= 4;
        assert!(Sketcher::from_bytes(&other).is_err(), "changed at {at}");
    }
}

#[test]
fn runs_lose_no_more_than_one_stream() {
    // A decaying spectrum with noise, 64 runs against one.
    let (n, dim) = (40_000, 64);
    let noise = noise(n * dim, 9);
    let scale = |c: usize| 10.0 / (1.0 + c as f32).powf(0.8);
    let data: Vec<f32> = noise.iter().enumerate().map(|(e, x)| x * scale(e % dim)).collect();
    for method in [Method::Frosh, Method::FroshSparse, Method::Osh] {
        let energy = |run: u64, seed: u64| {
            let config = Config::new(dim).sketch_rows(32).method(method).seed(seed).run_rows(run);
            let mut sketcher = Sketcher::new(config).unwrap();
            sketcher.push(Rows::new(&data, dim).unwrap()).unwrap();
            let sketch = sketcher.finish();
            let certificate = sketch.certificate();
            (sketch.captured_energy(&[16]).unwrap()[0], certificate.removed / certificate.mass)
        };
        let mean = |run| {
            let all: Vec<(f64, f64)> = (0..5).map(|seed| energy(run, seed)).collect();
            (all.iter().map(|x| x.0).sum::<f64>() / 5.0, all.iter().map(|x| x.1).sum::<f64>() / 5.0)
        };
        let (one, many) = (mean(0), mean(625));
        eprintln!("{method}: captured and removed in one run {one:?}, in 64 runs {many:?}");
        assert!(many.0 > one.0 - 0.004, "{method}: {many:?} against {one:?}");
        assert!(many.1 < 1.25 * one.1, "{method}: {many:?} against {one:?}");
    }
}
