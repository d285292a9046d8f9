//! Names of enum variants in files and on the command line.

/// Implements `NAMES`, `as_str`, `Display` and `FromStr` for an enum from one list of names.
macro_rules! names {
    ($t:ident, $what:literal, $($variant:ident => $name:literal),+) => {
        impl $t {
            /// The names of all variants.
            pub const NAMES: &[&str] = &[$($name),+];

            /// The name of the variant in files and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($t::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $t {
            fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $t {
            fn deserialize<D: serde::Deserializer<'de>>(
                from: D,
            ) -> std::result::Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }

        impl std::str::FromStr for $t {
            type Err = $crate::Error;

            fn from_str(name: &str) -> $crate::Result<Self> {
                match name {
                    $($name => Ok($t::$variant),)+
                    _ => Err($crate::Error::Name {
                        what: $what,
                        got: name.to_owned(),
                        known: $t::NAMES,
                    }),
                }
            }
        }
    };
}
pub(crate) use names;
