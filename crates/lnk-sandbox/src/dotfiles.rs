//! dotfiles
