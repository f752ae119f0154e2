//! ready
