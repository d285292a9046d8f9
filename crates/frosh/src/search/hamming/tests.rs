//! Tests the kernels against a bit count in one line, and searches against a sort of all rows.

use super::best::Neighbour;
use super::planes::{Planes, Quad};
use super::scan::Scan;
use crate::arch::Isa;
use crate::arch::hamming::{
    GroupOrder, Table, distance, distances, listed_distances, masked_distances, seek,
};
use crate::error::Error;
use crate::pool::Pool;
use crate::search::codes::{Codes, HasherId};
use crate::search::options::{Hit, Search};
use proptest::prelude::*;
use roaring::RoaringTreemap;

fn count(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(x, y)| (x ^ y).count_ones()).sum()
}

/// Pseudo-random bytes; every fifth row is all zeros, and the one after it all ones.
fn bytes(rows: usize, width: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data: Vec<u8> = (0..rows * width)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        })
        .collect();
    for (i, row) in data.chunks_exact_mut(width).enumerate().filter(|(i, _)| i % 5 < 2) {
        row.fill(if i % 5 == 0 { 0 } else { 0xff });
    }
    data
}

fn widths() -> Vec<usize> {
    // Miri is a thousand times slower: one width for each path through the kernels.
    if cfg!(miri) {
        return vec![1, 7, 8, 9, 16, 32, 33, 64, 96];
    }
    (1..=40).chain([48, 63, 64, 65, 96, 127, 128, 200, 256, 511, 512, 1056, 2048]).collect()
}

/// Number of cases that Miri runs; without Miri all cases run.
fn few(cases: usize) -> usize {
    if cfg!(miri) { cases } else { usize::MAX }
}

#[test]
fn every_kernel_counts_the_bits_that_differ() {
    for width in widths() {
        for rows in [0, 1, 3, 33, 101, 31, 32, 64, 300].into_iter().take(few(5)) {
            let (data, queries) = (bytes(rows, width, 3), bytes(3, width, 8));
            let (table, queries) = (Table::new(&data, width), Table::new(&queries, width));
            for q in 0..3 {
                let query = queries.row(q);
                let want: Vec<u32> = (0..rows).map(|i| count(query, table.row(i))).collect();
                for isa in Isa::every() {
                    let case = format!("{isa:?}, {width} bytes, {rows} rows, query {q}");
                    let mut got = vec![0; rows];
                    distances(isa, query, table, &mut got);
                    assert_eq!(got, want, "{case}");
                    for (i, want) in want.iter().enumerate() {
                        assert_eq!(distance(query, table.row(i)), *want, "{case}");
                    }
                    let picked: Vec<u32> = (0..rows as u32).rev().step_by(3).collect();
                    let mut got = vec![7];
                    listed_distances(isa, query, table, &picked, &mut got);
                    let wanted: Vec<u32> = picked.iter().map(|i| want[*i as usize]).collect();
                    assert_eq!(got, wanted, "{case}");
                    let mask =
                        0x9249_1249_4489_5aa5 & u64::MAX.unbounded_shr(64 - rows.min(64) as u32);
                    let mut got = [u32::MAX; 64];
                    masked_distances(isa, query, table, 0, mask, &mut got);
                    for (i, got) in got.iter().enumerate() {
                        let want = if mask >> i & 1 == 1 { want[i] } else { u32::MAX };
                        assert_eq!(*got, want, "{case}");
                    }
                    for limit in
                        [0, 1, 4 * width as u32 - 2, 4 * width as u32, 8 * width as u32 + 1]
                    {
                        let mut near = Vec::new();
                        let mut from = 0;
                        while let Some((position, mask)) = seek(isa, query, table, from, limit) {
                            assert!(mask != 0, "{case}");
                            let first = GroupOrder::new(table).first_row(position);
                            near.extend((0..64).filter(|i| mask >> i & 1 == 1).map(|i| first + i));
                            from = position + 1;
                        }
                        near.sort_unstable();
                        let want: Vec<usize> = (0..rows).filter(|i| want[*i] < limit).collect();
                        assert_eq!(near, want, "{case}, limit {limit}");
                    }
                }
            }
        }
    }
}

#[test]
fn planes_find_what_is_below_the_limits() {
    for width in widths() {
        for (rows, queries_given) in
            [(1, 1), (130, 4), (63, 2), (64, 3), (200, 4)].into_iter().take(few(2))
        {
            let (data, queries) = (bytes(rows, width, 5), bytes(4, width, 9));
            let (table, queries) = (Table::new(&data, width), Table::new(&queries, width));
            let quad = Quad::new(queries.part(0, queries_given));
            let (all, middle) = (8 * width as u32, 4 * width as u32);
            let half = middle.min(255);
            for given in [
                [half; 4],
                [half, half / 2, 1, 0],
                [255; 4],
                [3, half - 2, half, 255],
                [middle; 4],
                [256, middle + 5, 0, middle - 3],
                [all + 1; 4],
            ] {
                let mut limits = [0; 4];
                limits[..queries_given].copy_from_slice(&given[..queries_given]);
                for isa in Isa::every() {
                    let mut planes = Planes::default();
                    planes.transpose(isa, table);
                    let (mut found, mut from) = (vec![Vec::new(); 4], 0);
                    while let Some(near) = planes.seek(isa, &quad, from, limits) {
                        for (q, found) in found.iter_mut().enumerate() {
                            let rows = (0..64).filter(|i| near.masks[q] >> i & 1 == 1);
                            found.extend(rows.map(|i| (64 * near.group + i, near.distance(q, i))));
                        }
                        from = near.group + 1;
                    }
                    for q in 0..queries_given {
                        let all = (0..rows).map(|i| (i, count(queries.row(q), table.row(i))));
                        let want: Vec<_> = all.filter(|(_, d)| *d < limits[q]).collect();
                        assert_eq!(
                            found[q], want,
                            "{isa:?}, {width} bytes, {rows} rows, {limits:?}"
                        );
                    }
                }
            }
        }
    }
}

/// The reference: sorts all rows that `keep` accepts.
fn sorted(base: &Codes, queries: &Codes, keep: impl Fn(&Hit) -> bool, k: usize) -> Vec<Vec<Hit>> {
    let one = |q: usize| {
        let mut all: Vec<Hit> = (0..base.len())
            .map(|i| Hit { distance: count(queries.row(q), base.row(i)).into(), id: i as u64 })
            .filter(&keep)
            .collect();
        all.sort();
        all.truncate(k);
        all
    };
    (0..queries.len()).map(one).collect()
}

fn codes(data: Vec<u8>, width: usize) -> Codes {
    Codes::new(8 * width, HasherId(1), data)
}

fn scan<'a>(base: &'a Codes, queries: &'a Codes, k: usize) -> Scan<'a> {
    Scan { table: base.table(), queries: queries.table(), k, limit: u32::MAX, allowed: None }
}

fn hits(found: Vec<Vec<Neighbour>>) -> Vec<Vec<Hit>> {
    let hit = |n: &Neighbour| Hit { id: n.id, distance: n.distance.into() };
    found.iter().map(|list| list.iter().map(hit).collect()).collect()
}

fn everything(_: &Hit) -> bool {
    true
}

/// Rows with few different bytes, so that many distances tie.
fn tied() -> impl Strategy<Value = (Codes, Codes)> {
    let width = prop_oneof![1usize..20, Just(24), Just(30), Just(32), Just(40), Just(64)];
    (width, 0usize..400, 0usize..30, any::<u64>(), 1u8..=4).prop_map(
        |(width, n, m, seed, kinds)| {
            let make = |rows, seed| {
                let data = bytes(rows, width, seed).into_iter();
                codes(data.map(|b| if b % kinds == 0 { b & 3 } else { 0 }).collect(), width)
            };
            (make(n, seed), make(m, seed ^ 1))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn searches_equal_a_sort_of_all_rows(
        (base, queries) in tied(), k in 0usize..60, radius in 0u32..30, step in 1usize..40,
    ) {
        let pool = Pool::new(3).unwrap();
        let want = sorted(&base, &queries, everything, k);
        let within = sorted(&base, &queries, |hit| hit.distance <= radius.into(), usize::MAX);
        let allowed: RoaringTreemap = (0..1000u64).filter(|i| i % step as u64 == 0).collect();
        let among = sorted(&base, &queries, |hit| allowed.contains(hit.id), k);
        for isa in Isa::every() {
            for pool in [&Pool::ONE, &pool] {
                let scan = scan(&base, &queries, k);
                prop_assert_eq!(&hits(scan.search_with(isa, pool)), &want);
                let filtered = Scan { allowed: Some(&allowed), ..scan };
                prop_assert_eq!(&hits(filtered.search_with(isa, pool)), &among);
                let near = Scan { k: usize::MAX, limit: radius + 1, allowed: None, ..filtered };
                prop_assert_eq!(&hits(near.search_with(isa, pool)), &within);
            }
        }
    }

    #[test]
    fn one_mask_on_all_codes_changes_nothing((base, queries) in tied(), seed: u64, k in 0usize..60) {
        let mask = bytes(3, base.bytes_per_row(), seed)[2 * base.bytes_per_row()..].to_vec();
        let masked = |codes_: &Codes| {
            let data = codes_.as_bytes().iter().zip(mask.iter().cycle());
            codes(data.map(|(b, m)| b ^ m).collect(), base.bytes_per_row())
        };
        let found = base.nearest(&queries, k).unwrap();
        prop_assert_eq!(masked(&base).nearest(&masked(&queries), k).unwrap(), found);
    }

    #[test]
    fn rows_in_another_order_are_found_under_their_new_numbers((base, queries) in tied()) {
        let n = base.len();
        let place = |i: usize| (n - 1 - i) / 2 + if (n - 1 - i).is_multiple_of(2) { 0 } else { n.div_ceil(2) };
        let mut data = vec![0; base.as_bytes().len()];
        for i in 0..n {
            let width = base.bytes_per_row();
            data[place(i) * width..][..width].copy_from_slice(base.row(i));
        }
        let moved = codes(data, base.bytes_per_row()).nearest(&queries, n).unwrap();
        for (list, moved) in base.nearest(&queries, n).unwrap().into_iter().zip(moved) {
            let mut list: Vec<Hit> =
                list.iter().map(|hit| Hit { id: place(hit.id as usize) as u64, ..*hit }).collect();
            list.sort();
            prop_assert_eq!(list, moved);
        }
    }
}

/// Large enough that queries and rows are split into tasks in every way.
#[test]
fn threads_and_batches_do_not_matter() {
    for (width, n) in
        [(1, 70_000), (8, 70_000), (6, 40_000), (16, 40_000), (30, 40_000), (32, 70_000)]
    {
        let data: Vec<u8> = bytes(n, width, 7).into_iter().map(|b| b & 0x3b).collect();
        let base = codes(data, width);
        let queries = codes(base.as_bytes()[..200 * width].to_vec(), width);
        let half: RoaringTreemap = (0..n as u64).filter(|i| i * i % 7 < 3).collect();
        let few: RoaringTreemap = (0..n as u64).filter(|i| i % 101 == 5).collect();
        let want = sorted(&base, &queries, everything, 30);
        let want_half = sorted(&base, &queries, |hit| half.contains(hit.id), 30);
        let want_few = sorted(&base, &queries, |hit| few.contains(hit.id), 30);
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            for batch in [1, 7, 64, 200] {
                let mut found = [Vec::new(), Vec::new(), Vec::new()];
                // Small batches take long on many rows, so only the first queries run.
                let count = 200.min(20 * batch);
                for part in queries.as_bytes()[..count * width].chunks(batch * width) {
                    let part = codes(part.to_vec(), width);
                    let all = Search::nearest(30);
                    let searches = [all.clone(), all.clone().filter(&half), all.filter(&few)];
                    for (found, search) in found.iter_mut().zip(&searches) {
                        found.extend(pool.install(|| base.search(&part, search)).unwrap());
                    }
                }
                for (found, want) in found.iter().zip([&want, &want_half, &want_few]) {
                    assert_eq!(
                        found[..],
                        want[..count],
                        "{width} bytes, {threads} threads, batches of {batch}"
                    );
                }
            }
        }
    }
}

#[test]
fn edges_give_short_or_empty_lists() {
    let base = codes(bytes(9, 4, 1), 4);
    let (none, one) = (codes(Vec::new(), 4), codes(vec![0; 4], 4));
    let empty = vec![Vec::<Hit>::new()];
    assert_eq!(base.nearest(&one, 0).unwrap(), empty);
    assert_eq!(base.nearest(&one, usize::MAX).unwrap(), sorted(&base, &one, everything, 9));
    assert_eq!(base.nearest(&none, 5).unwrap(), Vec::<Vec<Hit>>::new());
    assert_eq!(none.nearest(&one, 5).unwrap(), empty);
    assert_eq!(none.search(&one, &Search::within(5)).unwrap(), empty);
    for radius in [32, 33, u32::MAX] {
        assert_eq!(
            base.search(&one, &Search::within(radius)).unwrap(),
            sorted(&base, &one, everything, 9)
        );
    }
    assert_eq!(
        base.search(&one, &Search::within(0)).unwrap()[0]
            .iter()
            .map(|hit| hit.id)
            .collect::<Vec<_>>(),
        [0, 5]
    );
    let far: RoaringTreemap = (9..u64::MAX).step_by(1 << 60).collect();
    for allowed in [&RoaringTreemap::new(), &far] {
        let search = Search::nearest(5).filter(allowed);
        assert_eq!(base.search(&one, &search).unwrap(), empty);
        assert_eq!(none.search(&one, &search).unwrap(), empty);
    }
}

#[test]
fn codes_of_another_hasher_are_refused() {
    let (base, other) = (codes(vec![0; 8], 4), Codes::new(32, HasherId(2), vec![0; 4]));
    assert!(base.nearest(&other, 1).is_err());
    assert!(base.search(&other, &Search::within(1)).is_err());
    assert!(base.search(&other, &Search::nearest(1).filter(&RoaringTreemap::new())).is_err());
}

#[test]
fn packed_codes_must_be_whole_and_their_spare_bits_0() {
    let make = |bits, data: &[u8]| Codes::from_packed(HasherId(1), bits, data.to_vec());
    assert_eq!(make(12, &[0xff, 0x0f, 0, 8]).unwrap().len(), 2);
    assert_eq!(make(16, &[0xff; 2]).unwrap(), codes(vec![0xff; 2], 2));
    assert!(matches!(make(0, &[]), Err(Error::Setting { .. })));
    assert!(matches!(make(12, &[0; 3]), Err(Error::Ragged { length: 3, dim: 2 })));
    assert!(matches!(make(12, &[0, 0, 0, 16]), Err(Error::Setting { got: 12, .. })));
}
