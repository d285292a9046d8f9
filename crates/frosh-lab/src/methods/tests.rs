//! All methods on real data. It is looked for in `../shared/data` beside the repository; without it, this is skipped.

use super::*;
use crate::clock::timed;
use crate::data::{self, Ground};
use std::path::Path;

#[test]
fn every_learned_method_but_plain_pca_beats_lsh_on_mnist_at_64_bits() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let set = folder.is_dir().then(|| data::find(std::slice::from_ref(&folder), "mnist").unwrap());
    let Some(set) = set.flatten() else {
        return crate::sample::skipped(&format!("no MNIST in {}", folder.display()));
    };
    let ground = Ground::new(&set, 10_000, 100, 1).unwrap();
    let (rows, dim) = (ground.base.rows(), ground.base.dim());
    let task =
        Task { rows, dim, seed: 5, no_rotation: false, learned_rotation: true, timed: false };
    let mut found = Vec::new();
    for mut learner in learners(&task, &Method::ALL, &[64]).unwrap() {
        let (seconds, done) = timed(|| learn(learner.as_mut(), &ground.base));
        done.unwrap();
        for (method, bits) in learner.gives() {
            let (fit, encoder) = timed(|| learner.fit(method, bits));
            let encoder = encoder.unwrap();
            let base = encoder.encode(ground.base.view().unwrap()).unwrap();
            let queries = encoder.encode(ground.queries.view().unwrap()).unwrap();
            let map = ground.measure(&queries, &base).unwrap().map();
            println!("{:<9} MAP {map:.3}, {seconds:.2} + {fit:.2} s", method.name());
            found.push((method, map));
        }
    }
    assert_eq!(found.len(), Method::ALL.len());
    let lsh = found.iter().find(|(method, _)| *method == Method::Lsh).unwrap().1;
    for (method, map) in found {
        assert!(
            matches!(method, Method::Lsh | Method::Pca) || map > 1.1 * lsh,
            "{method:?} {map} {lsh}"
        );
    }
}

#[test]
fn five_workers_share_the_rows_equally_and_none_is_lost() {
    let (dim, n) = (8usize, 1003u64);
    let rows: Vec<f32> = (0..n as usize * dim).map(|i| ((i * 7919) % 101) as f32).collect();
    let task =
        Task { rows: n, dim, seed: 1, no_rotation: false, learned_rotation: false, timed: true };
    let mut learner = library::Sketching::new(&task, Method::Dfrosh, 4).unwrap();
    rows.chunks(dim * 137).for_each(|batch| learner.push(batch).unwrap());
    let shares = learner.shares();
    assert_eq!(shares.iter().sum::<u64>(), n);
    assert!(shares.iter().all(|share| (200..=201).contains(share)), "{shares:?}");
    learner.end_pass().unwrap();
    let Encoder::Frosh(hasher) = learner.fit(Method::Dfrosh, 4).unwrap() else { panic!() };
    assert_eq!(hasher.rows(), n);
}
