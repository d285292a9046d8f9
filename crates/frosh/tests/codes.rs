//! Packed codes through the public interface: appended, imported and searched, compared with bit-by-bit definitions.

// Other test files use the rest of `common`.
#[allow(dead_code)]
mod common;

use common::{Random, learn, planted};
use frosh::{Codes, Config, HasherId, IdSet, Rows, Search};

/// Codes of two parts, appended, equal the codes of all rows: bytes, factors and search results.
#[test]
fn appended_codes_are_those_of_all_rows() {
    let (dim, cut) = (24, 130);
    let data = planted(400, dim, 6, 3.0, 5).rows;
    let hasher = learn(Config::new(dim), dim, &data).hasher(11).unwrap();
    let rows = Rows::new(&data[..], dim).unwrap();
    let of = |factors: bool, rows| match factors {
        true => hasher.encode_with_factors(rows).unwrap(),
        false => hasher.encode(rows).unwrap(),
    };
    for factors in [false, true] {
        let (whole, mut codes) = (of(factors, rows), of(factors, rows.slice(0..cut)));
        codes.append(&of(factors, rows.slice(cut..400))).unwrap();
        assert_eq!(codes.len(), 400);
        assert!(codes == whole && codes.to_bytes() == whole.to_bytes(), "factors: {factors}");
        assert_eq!(codes.nearest(&whole, 3).unwrap(), whole.nearest(&whole, 3).unwrap());
        // Codes with and without factors cannot be appended to each other.
        assert!(codes.append(&of(!factors, rows)).is_err());
        assert!(codes == whole, "a refused append changes nothing");
    }
}

#[test]
fn packed_codes_need_complete_rows_and_zero_spare_bits() {
    let id = HasherId::foreign(7);
    let codes = Codes::from_packed(id, 11, vec![0xff, 0x07, 0x00, 0x04]).unwrap();
    assert_eq!((codes.len(), codes.bits(), codes.hasher()), (2, 11, id));
    assert!((0..11).all(|k| codes.bit(0, k)) && (0..11).all(|k| codes.bit(1, k) == (k == 10)));
    assert_eq!(codes.distance(0, &codes, 1).unwrap(), 10);
    assert!(Codes::from_packed(id, 11, vec![0xff, 0x08]).is_err(), "bit 11 of 11");
    assert!(
        Codes::from_packed(id, 11, vec![0, 0, 0, 0x80]).is_err(),
        "the last bit of the last row"
    );
    assert!(Codes::from_packed(id, 11, vec![0; 3]).is_err(), "one row and a half");
    assert!(Codes::from_packed(id, 0, Vec::new()).is_err());
    assert!(Codes::from_packed(id, 16, vec![0xff; 4]).is_ok());
}

/// Radius searches and filtered searches, compared with a loop over all rows.
#[test]
fn searches_equal_a_loop_over_all_rows() {
    let mut random = Random(12);
    let bytes: Vec<u8> = (0..2 * 300).map(|i| random.bits() as u8 >> (4 * (i % 2))).collect();
    let codes = Codes::from_packed(HasherId::foreign(1), 12, bytes).unwrap();
    let queries = Codes::from_packed(codes.hasher(), 12, codes.as_bytes()[..20].to_vec()).unwrap();
    let allowed: IdSet = (0..300).step_by(7).collect();
    let far =
        |q: usize, i: usize| (0..12).filter(|k| codes.bit(i, *k) != queries.bit(q, *k)).count();
    let want = |q: usize, radius: usize, step: usize| {
        let all = (0..300).step_by(step).map(|i| (far(q, i) as u32, i as u64));
        let mut near: Vec<(u32, u64)> = all.filter(|hit| hit.0 as usize <= radius).collect();
        near.sort_unstable();
        near
    };
    for radius in [0, 3, 5, 12] {
        let near = Search::within(radius as u32);
        let within = codes.search(&queries, &near).unwrap();
        let some = codes.search(&queries, &near.filter(&allowed)).unwrap();
        for q in 0..queries.len() {
            let plain = |hits: &[frosh::Hit]| -> Vec<(u32, u64)> {
                hits.iter().map(|hit| (hit.distance as u32, hit.id)).collect()
            };
            assert_eq!(plain(&within[q]), want(q, radius, 1));
            assert_eq!(plain(&some[q]), want(q, radius, 7));
        }
    }
    let nearest = codes.search(&queries, &Search::nearest(9).filter(&allowed)).unwrap();
    for (q, hits) in nearest.iter().enumerate() {
        let hits: Vec<(u32, u64)> = hits.iter().map(|hit| (hit.distance as u32, hit.id)).collect();
        assert_eq!(hits, want(q, 12, 7)[..9]);
    }
}

#[test]
fn codes_of_other_hashers_or_lengths_are_refused() {
    let of = |id, bits| Codes::from_packed(HasherId::foreign(id), bits, vec![1, 0]).unwrap();
    let codes = of(1, 16);
    assert_eq!(codes.distance(0, &of(1, 16), 0).unwrap(), 0);
    for other in [of(2, 16), of(1, 15), of(2, 15), of(1, 8)] {
        assert!(codes.distance(0, &other, 0).is_err());
        assert!(codes.nearest(&other, 1).is_err());
        assert!(codes.search(&other, &Search::within(1)).is_err());
        assert!(codes.clone().append(&other).is_err());
    }
}
