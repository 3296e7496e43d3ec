//! Wrappers of streams whose reads, or writes, go to the inner stream.

/// Implements `AsyncRead` for a wrapper through its inner stream; the syntax is that of [`write_through`].
#[macro_export]
macro_rules! read_through {
    ([$($bounds:tt)*] $type:ty { $($held:pat => $inner:ident),+ $(,)? }) => {
        impl<$($bounds)*> tokio::io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $($held => std::pin::Pin::new($inner).poll_read(cx, buf),)+
                }
            }
        }
    };
}

/// Implements `AsyncWrite` for a wrapper through its inner stream. Each variant names its own:
///
/// ```text
/// write_through!([S: AsyncWrite + Unpin] Prefixed<S> { Self { inner, .. } => inner });
/// ```
///
/// An optional closure post-processes each attempt to write: `fn(&mut Self, &mut Context, Poll<io::Result<usize>>)`,
/// which returns the result.
#[macro_export]
macro_rules! write_through {
    ([$($bounds:tt)*] $type:ty { $($held:pat => $inner:ident),+ $(,)? }) => {
        $crate::wire::write_through!(
            [$($bounds)*] $type { $($held => $inner),+ },
            |_: &mut Self, _: &mut std::task::Context<'_>, attempt| attempt
        );
    };
    ([$($bounds:tt)*] $type:ty { $($held:pat => $inner:ident),+ $(,)? }, $written:expr) => {
        impl<$($bounds)*> tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let this = self.get_mut();
                let attempt = match this {
                    $($held => std::pin::Pin::new($inner).poll_write(cx, buf),)+
                };
                ($written)(this, cx, attempt)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let this = self.get_mut();
                let attempt = match this {
                    $($held => std::pin::Pin::new($inner).poll_write_vectored(cx, bufs),)+
                };
                ($written)(this, cx, attempt)
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $($held => $inner.is_write_vectored(),)+
                }
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $($held => std::pin::Pin::new($inner).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                match self.get_mut() {
                    $($held => std::pin::Pin::new($inner).poll_shutdown(cx),)+
                }
            }
        }
    };
}

pub use {read_through, write_through};
