"""A language model behind a URL: a server that speaks vLLM's, llama.cpp's or SGLang's protocol."""
