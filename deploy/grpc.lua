-- Whether a gRPC message is small but for its last tensor, as an inference with one image input is.
--
-- 60 MB of empty inputs, two bytes each, would become 6.5 GB in Triton. So everything but the last field lies in what
-- HAProxy has read (req.body: 16 kB with the headers), in at most 64 fields, and only tensor data reaches further.
-- ModelInferRequest: https://github.com/kserve/open-inference-protocol, raw_input_contents is number 7.

local PREFIX, MOST_FIELDS, RAW_INPUT_CONTENTS, BYTES = 5, 64, 7, 2

-- The number at a position, and the position behind it; nil where the body ends.
local function varint(body, at)
    local value = 0
    for shift = 0, 28, 7 do
        local byte = body:byte(at)
        if not byte then return nil end
        value = value | (byte & 127) << shift
        at = at + 1
        if byte < 128 then return value, at end
    end
end

core.register_fetches("is_flat_message", function(txn)
    local body = txn.f:req_body()
    if #body < PREFIX then return false end
    local last = PREFIX + string.unpack(">I4", body, 2)
    local at = PREFIX + 1
    for _ = 1, MOST_FIELDS do
        if at == last + 1 then return true end
        local tag, length
        tag, at = varint(body, at)
        if not tag or tag & 7 ~= BYTES then return false end
        length, at = varint(body, at)
        if not length then return false end
        at = at + length
        if at > #body + 1 then return tag >> 3 == RAW_INPUT_CONTENTS and at == last + 1 end
    end
    return false
end)
