//! Detection of instruction sets, and the tokens that prove it.
//!
//! [`Isa`] names, for each kind of element, the vectors that its kernels use on this CPU. Each kind has needs
//! of its own, so a CPU may have AVX-512 for `f32` and AVX2 for bytes:
//!
//! | elements | AVX-512 needs | AVX2 needs | NEON |
//! |---|---|---|---|
//! | `f32` | F, AVX2, FMA | AVX2, FMA | portable |
//! | `f64` | (AVX2 is used) | AVX2, FMA | portable |
//! | bytes | F, BW, VBMI, VNNI, VPOPCNTDQ, AVX2, POPCNT | AVX2, POPCNT | NEON |
//!
//! The features in this table are those in [`Isa::choose`], in the tokens' comments, and in the
//! `target_feature` attributes of the macros below. A change must be made in all three.

use super::portable::PortableF64;
use std::sync::LazyLock;

/// Proof that the CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2Fma(());

/// Proof that the CPU has AVX2 and POPCNT.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2Popcnt(());

/// Proof that the CPU has AVX-512F, AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512F(());

/// Proof that the CPU has AVX-512F, AVX-512BW, AVX-512VBMI, AVX-512VNNI, AVX-512VPOPCNTDQ, AVX2 and POPCNT.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512Popcnt(());

/// Proof that the CPU has NEON.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon(());

/// The vectors that kernels on `f32` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum F32Set {
    /// One float at a time: the scalar twin that tests compare with.
    #[cfg(test)]
    Scalar,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Fma),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512F),
}

/// The vectors that kernels on `f64` use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum F64Set {
    Portable(PortableF64),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Fma),
}

/// The vectors that kernels on bytes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Popcnt),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Popcnt),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// The instruction sets of this CPU that kernels use. To hold one is the proof that the CPU has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa {
    f32s: F32Set,
    f64s: F64Set,
    bytes: ByteSet,
}

static DETECTED: LazyLock<Isa> = LazyLock::new(|| Isa::choose(detected));

impl Isa {
    const PORTABLE: Self = Self {
        f32s: F32Set::Portable,
        f64s: F64Set::Portable(PortableF64),
        bytes: ByteSet::Portable,
    };

    /// The widest vectors that this CPU has. It is detected once for each process.
    #[inline]
    pub(crate) fn detect() -> Self {
        *DETECTED
    }

    /// The widest vectors of a CPU with these features. This is the only place where tokens are made.
    fn choose(has: impl Fn(&str) -> bool) -> Self {
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64")),
            expect(unused_mut, unused_variables, reason = "every kernel is portable there")
        )]
        let (mut isa, all) =
            (Self::PORTABLE, |features: &[&str]| features.iter().all(|feature| has(feature)));
        #[cfg(target_arch = "x86_64")]
        {
            if all(&["avx2", "fma"]) {
                isa.f64s = F64Set::Avx2(Avx2Fma(()));
                isa.f32s = F32Set::Avx2(Avx2Fma(()));
                if has("avx512f") {
                    isa.f32s = F32Set::Avx512(Avx512F(()));
                }
            }
            if all(&["avx2", "popcnt"]) {
                isa.bytes = ByteSet::Avx2(Avx2Popcnt(()));
                if all(&["avx512f", "avx512bw", "avx512vbmi", "avx512vnni", "avx512vpopcntdq"]) {
                    isa.bytes = ByteSet::Avx512(Avx512Popcnt(()));
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if all(&["neon"]) {
            isa.bytes = ByteSet::Neon(Neon(()));
        }
        isa
    }

    #[inline(always)]
    pub(super) fn f32s(self) -> F32Set {
        self.f32s
    }

    /// For [`with_f64s!`].
    #[inline(always)]
    pub(crate) fn f64s(self) -> F64Set {
        self.f64s
    }

    #[inline(always)]
    pub(super) fn bytes(self) -> ByteSet {
        self.bytes
    }

    /// Whether an instruction looks up a register of bytes in a table of sixteen. Without it, nibble planes do
    /// not pay.
    pub(crate) fn has_nibble_lookup(self) -> bool {
        self.bytes != ByteSet::Portable
    }

    /// Whether a few instructions look up 64 bytes in a table of 256.
    pub(crate) fn has_wide_byte_lookup(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.bytes, ByteSet::Avx512(_));
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Portable code, then each wider choice that this CPU can run: for tests that compare them.
    #[cfg(test)]
    pub(crate) fn every() -> Vec<Self> {
        let avx2 = |feature: &str| matches!(feature, "avx2" | "fma" | "popcnt");
        let mut every = vec![
            Self::PORTABLE,
            Self::choose(|feature| avx2(feature) && detected(feature)),
            Self::choose(detected),
        ];
        every.dedup();
        every
    }

    /// The same, after the scalar twin of kernels on `f32`.
    #[cfg(test)]
    pub(crate) fn every_and_scalar() -> Vec<Self> {
        let mut every = vec![Self { f32s: F32Set::Scalar, ..Self::PORTABLE }];
        every.extend(Self::every());
        every
    }
}

/// Whether this CPU has a feature, by the compiler's name for it.
#[cfg(target_arch = "x86_64")]
fn detected(feature: &str) -> bool {
    match feature {
        "popcnt" => is_x86_feature_detected!("popcnt"),
        "avx2" => is_x86_feature_detected!("avx2"),
        "fma" => is_x86_feature_detected!("fma"),
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512bw" => is_x86_feature_detected!("avx512bw"),
        "avx512vbmi" => is_x86_feature_detected!("avx512vbmi"),
        "avx512vnni" => is_x86_feature_detected!("avx512vnni"),
        "avx512vpopcntdq" => is_x86_feature_detected!("avx512vpopcntdq"),
        _ => unreachable!("no kernel needs {feature}"),
    }
}

/// Whether this CPU has a feature, by the compiler's name for it.
#[cfg(target_arch = "aarch64")]
fn detected(feature: &str) -> bool {
    match feature {
        "neon" => std::arch::is_aarch64_feature_detected!("neon"),
        _ => unreachable!("no kernel needs {feature}"),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected(_: &str) -> bool {
    false
}

/// Calls `$kernel::<V>(args)` with the [`F32Vector`](super::vector::F32Vector) `V` of `$isa`, compiled for its features.
macro_rules! dispatch_f32 {
    ($isa:expr, $kernel:ident ( $($arg:ident : $ty:ty),* ) -> $out:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2($($arg: $ty),*) -> $out {
            // SAFETY: the caller's promise covers the generic kernel.
            unsafe { $kernel::<core::arch::x86_64::__m256>($($arg),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx2,fma")]
        unsafe fn avx512($($arg: $ty),*) -> $out {
            // SAFETY: as above.
            unsafe { $kernel::<core::arch::x86_64::__m512>($($arg),*) }
        }
        // SAFETY: the token proves the features; the kernel's safe function has checked the lengths.
        unsafe {
            match $isa.f32s() {
                #[cfg(test)]
                $crate::arch::isa::F32Set::Scalar => $kernel::<f32>($($arg),*),
                $crate::arch::isa::F32Set::Portable => $kernel::<$crate::arch::portable::F32x4>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::arch::isa::F32Set::Avx2(_) => avx2($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::arch::isa::F32Set::Avx512(_) => avx512($($arg),*),
            }
        }
    }};
}

/// Calls `$kernel::<V>(args)` with the [`ByteVector`](super::vector::ByteVector) `V` of `$isa`, compiled for its
/// features, or the scalar twin `$plain(args)` where there is none.
macro_rules! dispatch_bytes {
    ($isa:expr, $kernel:ident or $plain:ident ( $($arg:ident : $ty:ty),* ) -> $out:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,popcnt")]
        unsafe fn avx2($($arg: $ty),*) -> $out {
            // SAFETY: the caller's promise covers the generic kernel.
            unsafe { $kernel::<$crate::arch::x86_64::avx2::ByteLine>($($arg),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni,avx512vpopcntdq,avx2,popcnt")]
        unsafe fn avx512($($arg: $ty),*) -> $out {
            // SAFETY: as above.
            unsafe { $kernel::<$crate::arch::x86_64::avx512::ByteLine>($($arg),*) }
        }
        #[cfg(target_arch = "aarch64")]
        #[target_feature(enable = "neon")]
        unsafe fn neon($($arg: $ty),*) -> $out {
            // SAFETY: as above.
            unsafe { $kernel::<$crate::arch::aarch64::neon::ByteLine>($($arg),*) }
        }
        match $isa.bytes() {
            $crate::arch::isa::ByteSet::Portable => $plain($($arg),*),
            // SAFETY: the token proves the features; the kernel's safe function has checked the lengths; so below.
            #[cfg(target_arch = "x86_64")]
            $crate::arch::isa::ByteSet::Avx2(_) => unsafe { avx2($($arg),*) },
            // SAFETY: see above.
            #[cfg(target_arch = "x86_64")]
            $crate::arch::isa::ByteSet::Avx512(_) => unsafe { avx512($($arg),*) },
            // SAFETY: see above.
            #[cfg(target_arch = "aarch64")]
            $crate::arch::isa::ByteSet::Neon(_) => unsafe { neon($($arg),*) },
        }
    }};
}

/// Calls `$plain(args)`, safe code without intrinsics. Where the CPU has AVX2 and POPCNT, it is a second copy that
/// was compiled for them: `count_ones` is then one instruction. AVX-512 gains nothing here.
macro_rules! dispatch_popcnt {
    ($isa:expr, $plain:ident ( $($arg:ident : $ty:ty),* ) -> $out:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,popcnt")]
        fn popcnt($($arg: $ty),*) -> $out {
            $plain($($arg),*)
        }
        match $isa.bytes() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: both tokens prove AVX2 and POPCNT.
            $crate::arch::isa::ByteSet::Avx2(_) | $crate::arch::isa::ByteSet::Avx512(_) => unsafe {
                popcnt($($arg),*)
            },
            _ => $plain($($arg),*),
        }
    }};
}

/// Evaluates `$body` with `$s` bound to the [`F64Vector`](super::vector::F64Vector) of `$isa`.
macro_rules! with_f64s {
    ($isa:expr, $s:ident => $body:expr) => {
        match $isa.f64s() {
            #[cfg(target_arch = "x86_64")]
            $crate::arch::F64Set::Avx2($s) => $body,
            $crate::arch::F64Set::Portable($s) => $body,
        }
    };
}

pub(crate) use with_f64s;
pub(super) use {dispatch_bytes, dispatch_f32, dispatch_popcnt};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn with(features: &[&str]) -> Isa {
        Isa::choose(|feature| features.contains(&feature))
    }

    const ALL: [&str; 8] = [
        "avx2",
        "fma",
        "popcnt",
        "avx512f",
        "avx512bw",
        "avx512vbmi",
        "avx512vnni",
        "avx512vpopcntdq",
    ];

    #[test]
    fn each_kind_of_element_has_needs_of_its_own() {
        let (fma, popcnt) = (Avx2Fma(()), Avx2Popcnt(()));
        let cases: [(&[&str], Isa); 9] = [
            (&[], Isa::PORTABLE),
            (&["fma", "popcnt"], Isa::PORTABLE),
            (&["avx2"], Isa::PORTABLE),
            (&["avx2", "popcnt"], Isa { bytes: ByteSet::Avx2(popcnt), ..Isa::PORTABLE }),
            (
                &["avx2", "fma"],
                Isa { f32s: F32Set::Avx2(fma), f64s: F64Set::Avx2(fma), bytes: ByteSet::Portable },
            ),
            // Without AVX2, AVX-512 is not used.
            (&ALL[1..], Isa::PORTABLE),
            // Skylake-X: AVX-512 for floats, AVX2 for codes.
            (
                &["avx2", "fma", "popcnt", "avx512f", "avx512bw"],
                Isa {
                    f32s: F32Set::Avx512(Avx512F(())),
                    f64s: F64Set::Avx2(fma),
                    bytes: ByteSet::Avx2(popcnt),
                },
            ),
            // Knights Mill has no BW.
            (
                &["avx2", "fma", "popcnt", "avx512f", "avx512vpopcntdq"],
                Isa {
                    f32s: F32Set::Avx512(Avx512F(())),
                    f64s: F64Set::Avx2(fma),
                    bytes: ByteSet::Avx2(popcnt),
                },
            ),
            (
                &ALL,
                Isa {
                    f32s: F32Set::Avx512(Avx512F(())),
                    f64s: F64Set::Avx2(fma),
                    bytes: ByteSet::Avx512(Avx512Popcnt(())),
                },
            ),
        ];
        for (features, want) in cases {
            assert_eq!(with(features), want, "{features:?}");
        }
    }

    #[test]
    fn every_choice_ends_with_the_detected_one() {
        let every = Isa::every();
        assert_eq!(every[0], Isa::PORTABLE);
        assert_eq!(every.last(), Some(&Isa::detect()));
    }
}
