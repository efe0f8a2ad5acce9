//! The macro `group!`, with which `table` declares a group of settings as a struct of settings and groups.

use super::setting::{Setting, SettingEntry, SettingReader};

pub(super) trait SettingGroup: Sized {
    /// Adds the settings of a group of this name, in the order of the documentation.
    fn declare(group: &str, settings: &mut Vec<Setting>);

    /// Reads the values; none only if a default is not of its type, which a test rules out.
    fn read(group: &str, reader: &mut SettingReader) -> Option<Self>;

    /// Adds the values, in the order of the documentation.
    fn list<'a>(&'a self, entries: &mut Vec<SettingEntry<'a>>);
}

/// Returns the dotted name of a member of a group. `group` is empty at the top.
pub(super) fn below(group: &str, member: &str) -> String {
    if group.is_empty() { member.to_owned() } else { format!("{group}.{member}") }
}

/// Declares the struct of a group. In settings files the group has the name of the field with that struct, so that
/// several groups can have one struct:
///
/// ```text
/// group! {
///     /// What the group is about.
///     Name {
///         // The settings of another type, as if they were declared here.
///         flat field: Group;
///         /// What the setting means.
///         field: Format = "default";
///         // A group within the group.
///         group field: Group;
///         // No setting.
///         plain field: Type;
///     }
/// }
/// ```
macro_rules! group {
    (
        $(#[doc = $about:literal])+
        $name:ident {
            $(flat $flat:ident: $flat_type:ty;)*
            $($(#[doc = $doc:literal])+ $field:ident: $format:ty = $default:literal;)*
            $(group $group:ident: $group_type:ty;)*
            $(plain $plain:ident: $plain_type:ty;)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub struct $name {
            $(pub $flat: $flat_type,)*
            $(
                $(#[doc = $doc])+
                pub $field: $crate::settings::setting::Resolved<
                    <$format as $crate::settings::format::Format>::Value
                >,
            )*
            $(pub $group: $group_type,)*
            $(pub $plain: $plain_type,)*
        }

        impl $crate::settings::group::SettingGroup for $name {
            fn declare(
                group: &str,
                settings: &mut Vec<$crate::settings::setting::Setting>,
            ) {
                $(<$flat_type>::declare(group, settings);)*
                $(settings.push($crate::settings::setting::Setting::new::<$format>(
                    $crate::settings::group::below(group, stringify!($field)),
                    $default,
                    concat!($($doc),+),
                ));)*
                $(<$group_type>::declare(
                    &$crate::settings::group::below(group, stringify!($group)),
                    settings,
                );)*
            }

            fn read(
                group: &str,
                reader: &mut $crate::settings::setting::SettingReader,
            ) -> Option<$name> {
                Some($name {
                    $($flat: <$flat_type>::read(group, reader)?,)*
                    $($field: reader.read::<$format>(
                        &$crate::settings::group::below(group, stringify!($field)),
                    )?,)*
                    $($group: <$group_type>::read(
                        &$crate::settings::group::below(group, stringify!($group)),
                        reader,
                    )?,)*
                    $($plain: Default::default(),)*
                })
            }

            fn list<'a>(&'a self, entries: &mut Vec<$crate::settings::setting::SettingEntry<'a>>) {
                $(self.$flat.list(entries);)*
                $(entries.push(self.$field.entry());)*
                $(self.$group.list(entries);)*
            }
        }
    };
}
pub(super) use group;

/// Makes formats of enums that `named_enum` defines.
macro_rules! choices {
    ($($type:ty),+) => {
        $(impl $crate::settings::format::Choice for $type {
            const ALL: &'static [$type] = &<$type>::ALL;

            fn word(self) -> &'static str {
                self.name()
            }
        })+
    };
}
pub(super) use choices;
