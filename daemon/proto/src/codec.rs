//! The codec of services with many calls that are open for long and carry little: no memory is set aside for what may come.
//!
//! The usual codec keeps 8 KiB for each direction of each call from its beginning to its end.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Bytes set aside for a request: one of a few names fits.
const REQUEST: usize = 256;
/// A message longer than this goes out before the next is encoded.
const FULL: usize = 32 << 10;

/// gRPC with protocol buffers, `T` out and `U` in.
#[derive(Debug)]
pub struct LeanCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LeanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = LeanEncoder<T>;
    type Decoder = LeanDecoder<U>;

    fn encoder(&mut self) -> LeanEncoder<T> {
        LeanEncoder(PhantomData)
    }

    fn decoder(&mut self) -> LeanDecoder<U> {
        LeanDecoder(PhantomData)
    }
}

/// The half that writes: takes memory when there is a message, and exactly as much as it needs.
#[derive(Debug)]
pub struct LeanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for LeanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        item.encode(buf).map_err(|error| Status::internal(format!("a message can't be encoded: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(0, FULL)
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct LeanDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for LeanDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = U::decode(buf);
        message.map(Some).map_err(|error| Status::internal(format!("a message can't be decoded: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(REQUEST, FULL)
    }
}
