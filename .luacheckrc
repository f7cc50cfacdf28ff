-- The library runs inside Redis Functions: Lua 5.1 without files and processes, plus what Redis adds.
std = {
   read_globals = {
      "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "rawset",
      "select", "setmetatable", "tonumber", "tostring", "type", "unpack", "xpcall", "_G", "_VERSION",
      coroutine = {fields = {"create", "resume", "running", "status", "wrap", "yield"}},
      math = {fields = {
         "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod", "frexp",
         "huge", "ldexp", "log", "log10", "max", "min", "modf", "pi", "pow", "rad", "random", "randomseed",
         "sin", "sinh", "sqrt", "tan", "tanh",
      }},
      string = {fields = {
         "byte", "char", "dump", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse",
         "sub", "upper",
      }},
      table = {fields = {"concat", "getn", "insert", "maxn", "remove", "sort"}},
      bit = {fields = {
         "arshift", "band", "bnot", "bor", "bswap", "bxor", "lshift", "rol", "ror", "rshift", "tobit", "tohex",
      }},
      cjson = {fields = {
         "decode", "encode", "encode_keep_buffer", "encode_max_depth", "encode_invalid_numbers",
         "encode_number_precision", "encode_sparse_array", "decode_invalid_numbers", "decode_max_depth", "null",
      }},
      cmsgpack = {fields = {"pack", "unpack", "unpack_limit", "unpack_one"}},
      struct = {fields = {"pack", "size", "unpack"}},
      redis = {fields = {
         "REDIS_VERSION", "REDIS_VERSION_NUM", "REPL_ALL", "REPL_AOF", "REPL_NONE", "REPL_REPLICA", "REPL_SLAVE",
         "LOG_DEBUG", "LOG_NOTICE", "LOG_VERBOSE", "LOG_WARNING", "acl_check_cmd", "call", "error_reply", "log",
         "pcall", "register_function", "set_repl", "setresp", "sha1hex", "status_reply",
      }},
   },
}
max_line_length = 160
