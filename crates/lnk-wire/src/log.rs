//! The log of every call.
