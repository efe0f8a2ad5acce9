//! A macro for enums whose variants have names, such as in settings, metrics and messages.

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
            /// All variants, in the order of their declaration.
            $vis const ALL: [$type; [$($text),*].len()] = [$($type::$variant),*];

            /// Returns the name of the variant.
            $vis const fn $name(self) -> &'static str {
                match self {
                    $($type::$variant => $text,)*
                }
            }
        }
    };
}
