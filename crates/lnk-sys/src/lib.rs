//! lnk-sys
