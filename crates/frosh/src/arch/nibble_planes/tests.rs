use super::*;

/// Numbers that look random.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state >> 33
}

#[test]
fn every_instruction_set_sums_lookups_alike() {
    let state = &mut 1;
    for width in [1, 2, 8, 13, 32] {
        let data: Vec<u8> = (0..150 * width).map(|_| draw(state) as u8).collect();
        let lookups: Lookups = (0..2 * width)
            .map(|_| std::array::from_fn(|_| std::array::from_fn(|_| (draw(state) % 128) as u8)))
            .collect();
        let low: Lookups = lookups.iter().map(|t| t.map(|t| t.map(|x| x / 16))).collect();
        let starts: [Line; 4] =
            std::array::from_fn(|_| Line(std::array::from_fn(|_| draw(state) as u8)));
        for isa in Isa::every() {
            let mut planes = vec![Line([0; LINE_ROWS]); 3 * 2 * width];
            transpose(isa, Table::new(&data, width), &mut planes);
            for (lookups, group) in [(&lookups, 0), (&lookups, 1), (&low, 0), (&low, 2)] {
                let planes = &planes[group * 2 * width..][..2 * width];
                let want = below_255_plain(lookups, planes, &starts);
                let four = below_255(isa, lookups, planes, &starts, 4);
                assert_eq!(four, want, "{isa:?} {width}");
                let one = below_255(isa, lookups, planes, &starts, 1);
                assert_eq!(one[0], want[0], "{isa:?} {width}, one query");
            }
        }
    }
}

#[test]
fn every_instruction_set_has_the_same_starts() {
    let state = &mut 2;
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e30, -1e30, 255.0, 256.0];
    for (at, by) in
        [(10.0, [1.0, -3.0]), (-4.0, [0.5, 2.0]), (300.0, [0.0, 0.0]), (-1.0, [0.0, 0.0])]
    {
        let mut numbers = || -> [f32; LINE_ROWS] {
            std::array::from_fn(|i| match odd.get(i) {
                Some(odd) => *odd,
                None => draw(state) as f32 / (1u64 << 31) as f32 * 150.0,
            })
        };
        let (a, mut b) = (numbers(), numbers());
        b[..9].rotate_left(4);
        let mut want = Line([0; LINE_ROWS]);
        let forced = starts_plain(&a, &b, at, by, &mut want);
        for isa in Isa::every() {
            let mut got = Line([9; LINE_ROWS]);
            assert_eq!(starts(isa, [&a, &b], at, by, &mut got), forced, "{isa:?}");
            for row in (0..LINE_ROWS).filter(|row| forced >> row & 1 == 0) {
                assert_eq!(got.0[row], want.0[row], "{isa:?}, row {row}");
            }
        }
    }
}
