//! What kind of address it is.
