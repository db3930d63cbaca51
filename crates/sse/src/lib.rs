//! Bytes and their arrival times to SSE events to OpenAI deltas with token counts.
