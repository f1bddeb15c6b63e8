//! Examples of every variant of an enum of the protocol, for tests and for the attack suite.

/// Defines a function that returns examples of every variant, from a list for each. A variant without a list does
/// not compile, so that a new request cannot be left out.
macro_rules! of_every {
    ($(#[$about:meta])* fn $name:ident() -> Vec<$what:ty> = $every:ident { $($variant:ident => $examples:expr,)+ }) => {
        $(#[$about])*
        fn $name() -> Vec<$what> {
            const _: fn(&$every) = |one| match one {
                $($every::$variant { .. } => {})+
            };
            [$(Vec::from($examples)),+].concat()
        }
    };
}
pub(crate) use of_every;
