//! lnk-spec
