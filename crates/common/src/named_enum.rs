//! Enums whose variants have names.

/// Defines an enum, the list of its variants as `ALL`, and the function that returns the name of a variant.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident, $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $type {
            /// All of them, in the order of their declaration.
            $vis const ALL: [$type; [$($text),*].len()] = [$($type::$variant),*];

            /// Returns what it is called.
            $vis const fn $name(self) -> &'static str {
                match self {
                    $($type::$variant => $text,)*
                }
            }
        }
    };
}
