-- Checks of inference requests, within the part that HAProxy has buffered (req.body: 16 kB with the headers). Each
-- fetch returns the error message of the first problem, or "" for a valid request.
--
-- Everything except the tensors must be small. The JSON may have at most 64 brackets: 40,000 crash Triton. In a gRPC
-- message, all fields except the last must be in the buffered part and contain at most 512 numbers. Only tensor data
-- may extend beyond it: 60 MB of empty inputs with two bytes each would use 6.5 GB in Triton.
--
-- A shape must not have more elements than the request has bytes. Triton multiplies its dimensions modulo 2^64 before
-- it compares the product with the number of bytes. NumPy does not wrap the product, and the model's process crashes.

local BRACKETS, PREFIX, MAX_NUMBERS = 64, 5, 512
-- Field numbers of ModelInferRequest and InferInputTensor: https://github.com/kserve/open-inference-protocol
local INPUTS, RAW_INPUT_CONTENTS, SHAPE, CONTENTS, BYTES = 5, 7, 3, 5, 2
local TOO_DEEP = "the JSON of the request has over 64 brackets, or is incomplete"
local TOO_MUCH = "send one image input, as raw contents"
local TOO_MANY = "a shape has more elements than the request has bytes, or is not a list of integers"

-- Product of the number of elements and one more dimension; nil if it exceeds the size of the request. A dimension of 0
-- counts as 1, because NumPy fails on an overflow of the other dimensions even if the product is 0.
local function times(elements, side, size)
    if not side or side > size or elements * math.max(side, 1) > size then return nil end
    return elements * math.max(side, 1)
end

core.register_fetches("json_fault", function(txn)
    local json, size = txn.f:req_body():sub(1, txn:get_var("txn.json_bytes")), txn.f:req_body_size()
    local _, brackets = json:gsub("[%[{]", "")
    if #json < txn:get_var("txn.json_bytes") or brackets > BRACKETS then return TOO_DEEP end
    json = json:gsub("\\[^u]", "")  -- now every quote begins or ends a string; only \u escapes remain
    for name, colon, value in json:gmatch('"([^"]*)"%s*(:?)([^"]*)') do
        if colon == ":" and (name == "shape" or name:find("\\", 1, true)) then
            local elements, sides = 1, value:match("^%s*%[([%d%s,]*)%]")
            if not sides then return TOO_MANY end
            for side in sides:gmatch("%d+") do
                elements = times(elements, tonumber(side), size)
                if not elements then return TOO_MANY end
            end
        end
    end
    return ""
end)

local left  -- remaining quota of numbers in the message

-- Returns the varint at a position and the next position; nil at the end of the body, or if the quota is used up.
local function varint(body, at)
    local value = 0
    left = left - 1
    if left < 0 then return nil end
    for shift = 0, 28, 7 do
        local byte = body:byte(at)
        if not byte then return nil end
        value = value | (byte & 127) << shift
        at = at + 1
        if byte < 128 then return value, at end
    end
end

-- Returns the number of the field at a position, and the start and end of its bytes; nil if it exceeds `highest`.
local function field(body, at, highest)
    local tag, length
    tag, at = varint(body, at)
    if not tag or tag & 7 ~= BYTES or tag >> 3 > highest then return nil end
    length, at = varint(body, at)
    if not length then return nil end
    return tag >> 3, at, at + length
end

local function input_fault(body, at, stop, size)
    local elements = 1
    while at < stop do
        local number, from, to = field(body, at, CONTENTS)
        if not number or to > stop then return TOO_MUCH end
        while number == SHAPE and from < to do
            local side
            side, from = varint(body, from)
            elements = times(elements, side, size)
            if not elements or from > to then return TOO_MANY end
        end
        at = to
    end
    return ""
end

core.register_fetches("message_fault", function(txn)
    local body = txn.f:req_body()
    if #body < PREFIX then return TOO_MUCH end
    local size, at = string.unpack(">I4", body, 2)
    local stop = at + size
    left = MAX_NUMBERS
    while at ~= stop do
        local number, from, to = field(body, at, RAW_INPUT_CONTENTS)
        if not number or to > stop then return TOO_MUCH end
        if to > #body + 1 then return number == RAW_INPUT_CONTENTS and to == stop and "" or TOO_MUCH end
        local fault = number == INPUTS and input_fault(body, from, to, size) or ""
        if fault ~= "" then return fault end
        at = to
    end
    return ""
end)
