//! Made-up vectors that behave like embeddings: clusters of very different sizes, and a variance that falls
//! by a power law over the directions, which are turned so that no axis is special.

/// SplitMix64: small, and good enough for a demonstration.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Two standard normal numbers (Box and Muller).
    fn normals(&mut self) -> (f64, f64) {
        let (radius, angle) =
            ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        (radius * angle.cos(), radius * angle.sin())
    }

    /// Normal numbers whose variance falls like a power of their place.
    fn power_law(&mut self, scale: f64, deviations: &[f64], out: &mut [f64]) {
        for (pair, deviations) in out.chunks_mut(2).zip(deviations.chunks(2)) {
            let (a, b) = self.normals();
            for ((x, d), normal) in pair.iter_mut().zip(deviations).zip([a, b]) {
                *x = scale * d * normal;
            }
        }
    }
}

/// `rows` rows of `dim` values.
pub(super) fn vectors(rows: usize, dim: usize, clusters: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    let deviations: Vec<f64> = (1..=dim).map(|i| (i as f64).powf(-0.6)).collect();
    let mut centres = vec![0.0; clusters * dim];
    centres.chunks_mut(dim).for_each(|centre| random.power_law(1.0, &deviations, centre));
    // Reflections at random planes turn the axes.
    let mirrors: Vec<Vec<f64>> = (0..3)
        .map(|_| {
            let mut mirror = vec![0.0; dim];
            random.power_law(1.0, &vec![1.0; dim], &mut mirror);
            let length = mirror.iter().map(|x| x * x).sum::<f64>().sqrt();
            mirror.iter_mut().for_each(|x| *x /= length);
            mirror
        })
        .collect();
    let mut out = Vec::with_capacity(rows * dim);
    let mut row = vec![0.0; dim];
    for _ in 0..rows {
        // A uniform number squared: early clusters are large, late ones small.
        let cluster = (random.uniform().powi(2) * clusters as f64) as usize % clusters;
        random.power_law(0.7, &deviations, &mut row);
        row.iter_mut().zip(&centres[cluster * dim..]).for_each(|(x, c)| *x += c);
        for mirror in &mirrors {
            let along: f64 = row.iter().zip(mirror).map(|(x, m)| x * m).sum();
            row.iter_mut().zip(mirror).for_each(|(x, m)| *x -= 2.0 * along * m);
        }
        out.extend(row.iter().map(|x| *x as f32));
    }
    out
}
