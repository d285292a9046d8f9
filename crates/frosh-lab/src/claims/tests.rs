//! Each criterion on a few made-up records: where it holds, where it fails, where there is nothing to tell by.

use super::*;
use crate::paper;
use crate::results::{Record, Run};

fn judge(id: &str, records: Vec<Record>) -> Claim {
    let all = claims(&Results { records, ..Results::default() });
    all.into_iter().find(|c| c.id == id).unwrap_or_else(|| panic!("no claim {id}"))
}

/// A claim holds on some records, fails on others, and is not tested on none.
fn check(id: &str, holds: Vec<Record>, fails: Vec<Record>) {
    let claim = judge(id, holds.clone());
    assert_eq!(claim.real.verdict, Verdict::Holds, "{claim:?}");
    assert_eq!(claim.real.passed, claim.real.cells);
    assert_eq!(claim.stand_ins, None);
    assert_eq!(claim.notes, Vec::<String>::new());
    let claim = judge(id, fails.clone());
    assert_eq!((claim.real.verdict, claim.real.passed), (Verdict::DoesNotHold, 0), "{claim:?}");
    // One data set of each kind: in part.
    let other = |r: &Record| Record { data: format!("{}-2", r.data), ..r.clone() };
    let both: Vec<Record> = holds.iter().cloned().chain(fails.iter().map(other)).collect();
    let claim = judge(id, both.clone());
    assert_eq!(claim.real.verdict, Verdict::InPart, "{claim:?}");
    assert_eq!(claim.data.len(), 2);
    assert!(claim.measured.contains("Cells that meet it: "));
    // A reduced run has numbers, and no verdict.
    let run = Run { quick: true, ..Run::default() };
    let all = claims(&Results { run, records: both });
    let quick = all.into_iter().find(|c| c.id == id).unwrap();
    assert_eq!(quick.real, Outcome { verdict: Verdict::TooSmall, ..claim.real });
    assert_eq!(quick.measured, claim.measured);
    // A claim that fails on a stand-in only says so.
    let made = |r: &Record| Record { data: format!("{}-stand-in", r.data), ..r.clone() };
    let claim = judge(id, holds.iter().cloned().chain(fails.iter().map(made)).collect());
    let verdicts = (claim.real.verdict, claim.stand_ins.map(|o| o.verdict));
    assert_eq!(verdicts, (Verdict::Holds, Some(Verdict::DoesNotHold)));
    assert!(claim.notes.iter().any(|n| n.contains("fails on stand-ins only")), "{claim:?}");
    assert!(claim.measured.contains("on real data") && claim.measured.contains("On stand-ins"));
    assert_eq!(judge(id, Vec::new()).real.verdict, Verdict::NotTested);
    // A method alone, or without its measurement, tells nothing.
    let only: Vec<Record> = holds.iter().take(1).cloned().collect();
    assert_eq!(judge(id, only).real.verdict, Verdict::NotTested);
    let blank = |r: Record| Record {
        relative_error: Some(f64::NAN),
        seconds: None,
        map: None,
        returned: None,
        ..r
    };
    assert_eq!(judge(id, holds.into_iter().map(blank).collect()).real.verdict, Verdict::NotTested);
}

fn sketch(
    sweep: &str,
    (l, n, d): (u64, u64, u64),
    tau: Option<u32>,
    error: f64,
    seconds: f64,
) -> Record {
    Record {
        experiment: "sketch".into(),
        data: "synthetic".into(),
        method: if tau.is_some() { "FFD" } else { "FD" }.into(),
        sweep: Some(sweep.into()),
        rows: n,
        dim: d,
        sketch_rows: Some(l),
        tau,
        relative_error: Some(error),
        seconds: Some(seconds),
        ..Record::default()
    }
}

/// FD and FFD at one point.
fn point(sweep: &str, fd: (f64, f64), ffd: (f64, f64)) -> Vec<Record> {
    let at = (64, 100_000, 512);
    vec![sketch(sweep, at, None, fd.0, fd.1), sketch(sweep, at, Some(4), ffd.0, ffd.1)]
}

/// FD's and FFD's values along a sweep.
fn along(sweep: &str, values: &[(u64, f64)]) -> Vec<Record> {
    let at = |x| match sweep {
        "l" => (x, 100_000, 512),
        "n" => (64, x, 512),
        _ => (64, 100_000, x),
    };
    let both = values
        .iter()
        .flat_map(|&(x, v)| [None, Some(4)].map(|tau| sketch(sweep, at(x), tau, v, v)));
    both.collect()
}

fn of(experiment: &str, data: &str, method: &str) -> Record {
    Record {
        experiment: experiment.into(),
        data: data.into(),
        method: method.into(),
        bits: Some(128),
        rows: 1000,
        dim: 10,
        ..Record::default()
    }
}

fn maps(experiment: &str, data: &str, values: &[(&str, f64)]) -> Vec<Record> {
    values.iter().map(|(m, v)| Record { map: Some(*v), ..of(experiment, data, m) }).collect()
}

fn times(data: &str, values: &[(&str, f64)]) -> Vec<Record> {
    values.iter().map(|(m, v)| Record { seconds: Some(*v), ..of("train-time", data, m) }).collect()
}

fn curves(values: &[(&str, f64)]) -> Vec<Record> {
    let curve = |v: f64| Some(vec![[1.0, 0.0, v], [9.0, 1.0, v]]);
    values
        .iter()
        .map(|(m, v)| Record { returned: curve(*v), ..of("precision-recall", "mnist", m) })
        .collect()
}

#[test]
fn ffd_against_fd() {
    check(
        "ffd-error-comparable",
        point("l", (0.01, 1.0), (0.019, 1.0)),
        point("l", (0.01, 1.0), (0.021, 1.0)),
    );
    check(
        "ffd-time-lower",
        point("l", (1.0, 10.0), (1.0, 4.9)),
        point("l", (1.0, 10.0), (1.0, 5.1)),
    );
    check(
        "ffd-slightly-worse-over-d",
        point("d", (0.01, 1.0), (0.014, 1.0)),
        point("d", (0.01, 1.0), (0.016, 1.0)),
    );
}

#[test]
fn trends_of_error() {
    check(
        "error-falls-with-l",
        along("l", &[(16, 3.0), (32, 2.0), (64, 2.05), (128, 1.0)]),
        along("l", &[(16, 3.0), (32, 2.0), (64, 2.5), (128, 1.0)]),
    );
    check(
        "error-falls-with-n",
        along("n", &[(10, 3.0), (20, 2.0)]),
        along("n", &[(10, 3.0), (20, 3.1)]),
    );
    check(
        "error-rises-with-d",
        along("d", &[(10, 2.0), (20, 3.0)]),
        along("d", &[(10, 3.0), (20, 2.9)]),
    );
}

#[test]
fn linear_times() {
    let square = [(100, 1.0), (200, 4.0), (400, 16.0)];
    let straight = [(100, 1.0), (200, 2.1), (400, 3.9)];
    check("time-linear-in-n", along("n", &straight), along("n", &square));
    check("time-linear-in-d", along("d", &straight), along("d", &square));
}

#[test]
fn the_size_of_a_block() {
    let over = |error: f64, seconds: f64| {
        let at = (64, 100_000, 512);
        vec![sketch("l", at, Some(1), 1.0, 1.0), sketch("l", at, Some(8), error, seconds)]
    };
    check("insensitive-to-m", over(1.4, 1.0), over(1.6, 1.0));
    check("larger-m-faster", over(1.0, 0.8), over(1.0, 0.95));
}

#[test]
fn codes_of_the_online_methods() {
    let online = |lsh, osh, frosh| {
        let mut all = maps("rounds", "mnist", &[("FROSH", frosh), ("OSH", osh), ("LSH", lsh)]);
        all.iter_mut().for_each(|r| r.round = Some(3));
        all
    };
    check("frosh-as-accurate-as-osh", online(0.1, 0.5, 0.48), online(0.1, 0.5, 0.47));
    check("far-above-lsh", online(0.4, 0.5, 0.49), online(0.48, 0.5, 0.49));
    let rounds = |values: [f64; 3]| {
        let record = |(i, v): (usize, &f64)| Record {
            round: Some(i as u32 + 1),
            map: Some(*v),
            ..of("rounds", "mnist", "FROSH")
        };
        values.iter().enumerate().map(record).collect::<Vec<_>>()
    };
    check("map-rises-with-rounds", rounds([0.3, 0.31, 0.309]), rounds([0.3, 0.31, 0.29]));
}

#[test]
fn codes_of_all_methods() {
    let all =
        |lsh, osh, och| maps("bits", "mnist", &[("LSH", lsh), ("OSH", osh), ("OCH-style", och)]);
    check("lsh-lowest", all(0.1, 0.2, 0.3), all(0.25, 0.2, 0.3));
    let sketched = |frosh, dfrosh| {
        maps("bits", "mnist", &[("FROSH", frosh), ("DFROSH", dfrosh), ("OSH", 0.5)])
    };
    check("frosh-dfrosh-like-osh", sketched(0.49, 0.48), sketched(0.4, 0.4));
    let flickr = |batch| {
        let all = [("FROSH", 0.3), ("DFROSH", 0.3), ("SGH", batch), ("OCH-style", batch)];
        maps("bits", "flickr25600", &all)
    };
    check("above-batch-on-flickr", flickr(0.2), flickr(0.4));
    let elsewhere = maps("bits", "mnist", &[("FROSH", 0.3), ("SGH", 0.2)]);
    assert_eq!(judge("above-batch-on-flickr", elsewhere).real.verdict, Verdict::NotTested);
}

#[test]
fn most_cases_are_enough_for_och() {
    let on =
        |data: &str, och| maps("bits", data, &[("OSH", 0.5), ("OCH-style", och), ("PCA-ITQ", 0.9)]);
    let verdict = |och: [f64; 3]| {
        let cases = [on("mnist", och[0]), on("gist1m", och[1]), on("cifar10-gist", och[2])];
        judge("och-best", cases.concat()).real.verdict
    };
    assert_eq!(verdict([0.6, 0.6, 0.4]), Verdict::Holds);
    assert_eq!(verdict([0.6, 0.4, 0.4]), Verdict::DoesNotHold);
    assert_eq!(verdict([0.4, 0.4, 0.4]), Verdict::DoesNotHold);
    let alone = judge("och-best", maps("bits", "mnist", &[("OSH", 0.5)]));
    assert_eq!(alone.real.verdict, Verdict::NotTested);
}

#[test]
fn nine_cells_of_ten_are_most() {
    let verdict = |good: usize| {
        let one = |i: usize| {
            let osh = if i < good { 0.5 } else { 0.9 };
            let mut pair = maps("bits", "mnist", &[("FROSH", 0.5), ("OSH", osh)]);
            pair.iter_mut().for_each(|r| r.bits = Some(i as u32));
            pair
        };
        let claim = judge("frosh-dfrosh-like-osh", (0..20).flat_map(one).collect());
        assert_eq!((claim.real.passed, claim.real.cells), (good, 20));
        claim.real.verdict
    };
    assert_eq!(verdict(20), Verdict::Holds);
    assert_eq!((verdict(19), verdict(18)), (Verdict::HoldsInMost, Verdict::HoldsInMost));
    assert_eq!((verdict(17), verdict(1)), (Verdict::InPart, Verdict::InPart));
    assert_eq!(verdict(0), Verdict::DoesNotHold);
}

#[test]
fn cells_that_fail_against_our_own_och_are_counted() {
    let note = |sgh, och| {
        let all = [("FROSH", 0.3), ("DFROSH", 0.3), ("SGH", sgh), ("OCH-style", och)];
        judge("above-batch-on-flickr", maps("bits", "flickr25600", &all)).notes.join(" ")
    };
    assert!(note(0.2, 0.4).contains("All 2 cells that fail compare with our own OCH-style"));
    assert!(note(0.4, 0.4).contains("2 of the 4 cells that fail"), "{}", note(0.4, 0.4));
    assert_eq!((note(0.4, 0.2).as_str(), note(0.2, 0.2).as_str()), ("", ""));
    // The best of the others decides.
    let areas = |sgh, och| {
        judge("curves-competitive", curves(&[("FROSH", 0.3), ("SGH", sgh), ("OCH-style", och)]))
    };
    assert!(areas(0.5, 0.6).notes.concat().contains("All 1 cells that fail"));
    assert_eq!(areas(0.6, 0.5).notes, Vec::<String>::new());
}

#[test]
fn precision_and_recall() {
    check(
        "curves-overlap",
        curves(&[("OSH", 0.5), ("FROSH", 0.48), ("DFROSH", 0.46)]),
        curves(&[("OSH", 0.5), ("FROSH", 0.48), ("DFROSH", 0.44)]),
    );
    check(
        "curves-competitive",
        curves(&[("FROSH", 0.48), ("SGH", 0.5)]),
        curves(&[("FROSH", 0.47), ("SGH", 0.5)]),
    );
}

#[test]
fn times_of_training() {
    check(
        "och-slowest",
        times("mnist", &[("OCH-style", 3.0), ("SGH", 2.0)]),
        times("mnist", &[("OCH-style", 1.0), ("SGH", 2.0)]),
    );
    check(
        "sgh-like-osh",
        times("mnist", &[("SGH", 1.9), ("OSH", 1.0)]),
        times("mnist", &[("SGH", 2.1), ("OSH", 1.0)]),
    );
    check(
        "sgh-slower-on-flickr",
        times("flickr25600", &[("SGH", 1.6), ("OSH", 1.0)]),
        times("flickr25600", &[("SGH", 1.4), ("OSH", 1.0)]),
    );
    check(
        "frosh-tenth-of-osh",
        times("mnist", &[("OSH", 9.5), ("FROSH", 1.0)]),
        times("mnist", &[("OSH", 9.3), ("FROSH", 1.0)]),
    );
    check(
        "dfrosh-fifth-of-frosh",
        times("mnist", &[("DFROSH", 0.24), ("FROSH", 1.0)]),
        times("mnist", &[("DFROSH", 0.26), ("FROSH", 1.0)]),
    );
    check(
        "dfrosh-fastest",
        times("mnist", &[("DFROSH", 0.9), ("FROSH", 1.0), ("LSH", 0.1)]),
        times("mnist", &[("DFROSH", 1.1), ("FROSH", 1.0)]),
    );
    check(
        "dfrosh-against-batch",
        times("mnist", &[("SGH", 31.0), ("OCH-style", 300.0), ("DFROSH", 1.0)]),
        times("mnist", &[("SGH", 29.0), ("OCH-style", 20.0), ("DFROSH", 1.0)]),
    );
}

#[test]
fn the_papers_own_table_passes() {
    let mut records = Vec::new();
    let sets = [
        ("cifar10-gist", paper::Set::Cifar),
        ("mnist", paper::Set::Mnist),
        ("gist1m", paper::Set::Gist),
        ("flickr25600", paper::Set::Flickr),
    ];
    for (data, set) in sets {
        for method in ["SGH", "OCH-style", "OSH", "FROSH", "DFROSH"] {
            for bits in paper::BITS {
                let seconds = paper::seconds(set, method, bits);
                records.push(Record {
                    bits: Some(bits),
                    seconds,
                    ..of("train-time", data, method)
                });
            }
        }
    }
    let all = claims(&Results { records, ..Results::default() });
    let tested = all.iter().filter(|c| c.real.verdict != Verdict::NotTested);
    assert_eq!(tested.clone().count(), 7);
    for claim in tested {
        assert_eq!(claim.real.verdict, Verdict::Holds, "{claim:?}");
    }
    // And every bound that is shown is a number.
    assert!(all.iter().all(|c| !c.criterion.contains(['{', '–'])));
}

#[test]
fn claims_are_counted_by_verdict() {
    let pair = |data: &str| times(data, &[("OSH", 20.0), ("FROSH", 1.0)]);
    let records = [pair("gist1m-stand-in"), pair("mnist")].concat();
    let counts = tally(&claims(&Results { records, ..Results::default() }));
    assert_eq!(counts, [(Verdict::Holds, 1, 1), (Verdict::NotTested, 26, 0)]);
}

#[test]
fn every_id_is_its_own() {
    let mut ids: Vec<&str> = claims(&Results::default()).iter().map(|c| c.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    assert_eq!(all, 27);
}
