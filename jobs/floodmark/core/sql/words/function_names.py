"""Lists Spark 4.2's built-in functions by whether a replay gives the same result.

These sets are an allow-list: a function in none of them (a user-defined function, a newer built-in) is refused. They
were generated once from SHOW FUNCTIONS and the groups of Spark's ExpressionInfo.
"""

from __future__ import annotations

# Functions that depend only on their arguments and on the session zone, which a rule fixes.
SCALARS = frozenset(
    """
array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
arrays_zip flatten get sequence slice sort_array
bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
cardinality concat element_at reverse size try_element_at
coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull
bigint binary boolean cast try_cast date decimal double float int smallint string time timestamp tinyint
from_csv to_csv
add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day
make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
make_ym_interval minute month monthname months_between next_day quarter second time_bucket time_diff time_from_micros
time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp_micros
timestamp_millis timestamp_seconds timestampadd timestampdiff to_date to_time to_timestamp to_timestamp_ltz
to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_make_interval try_make_timestamp
try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time try_to_timestamp unix_date unix_micros
unix_millis unix_seconds unix_timestamp weekday weekofyear year
crc32 hash md5 sha sha1 sha2 xxhash64
from_json get_json_object json_array_length json_object_keys to_json
aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
zip_with
map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e exp expm1
factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint
round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex width_bucket
aes_decrypt try_aes_decrypt bitmap_bit_position bitmap_bucket_number bitmap_count typeof
equal_null ilike isnan isnotnull isnull like not regexp regexp_like rlike
named_struct struct
ascii base64 bit_length btrim char char_length character_length chr concat_ws contains decode elt encode endswith
find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length levenshtein locate lower
lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote regexp_count regexp_extract
regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space
split split_part startswith substr substring substring_index to_binary to_char to_number to_varchar translate trim
try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8
parse_url try_parse_url try_url_decode url_decode url_encode
is_variant_null parse_json to_variant_object try_parse_json try_variant_get variant_get
vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
""".split()
)

# Scalars that never return text from constants. Spark would fold a constant text to 'now' and read it as the clock.
NO_TEXT_OF_CONSTANTS = frozenset(
    """
array array_contains array_distinct array_position array_size arrays_overlap cardinality element_at get map named_struct
size struct
bigint boolean date decimal double float int smallint time timestamp tinyint
coalesce if ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull greatest least equal_null isnan isnotnull isnull not
add_months convert_timezone date_add date_diff date_from_unix_date date_part date_sub date_trunc dateadd datediff
datepart day dayofmonth dayofweek dayofyear extract from_utc_timestamp hour last_day make_date make_dt_interval
make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
months_between next_day quarter second time_bucket time_diff time_from_micros time_from_millis time_from_seconds
time_to_micros time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_seconds
timestampadd timestampdiff to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date
try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
ascii bit_length char_length character_length crc32 hash instr length levenshtein locate octet_length to_number
try_to_number xxhash64
abs acos acosh asin asinh atan atan2 atanh bround cbrt ceil ceiling cos cosh cot csc degrees div e exp expm1 factorial
floor hypot ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round sec sign signum sin sinh
sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex width_bucket
""".split()
)
# Type names that may precede a parenthesis: CAST(x AS varchar(10)).
TYPES = frozenset("varchar character numeric dec".split())

# Words that are arguments of functions but not columns: timestampadd(HOUR, 1, at).
UNITS = frozenset("microsecond millisecond second minute hour day dayofyear week month quarter year".split())

# Aggregates whose result is the same for every order of the rows (floating point: within 1e-9).
AGGREGATES = frozenset(
    """
any approx_count_distinct avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or
corr count count_if covar_pop covar_samp every kurtosis max mean median min percentile percentile_cont percentile_disc
regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev
stddev_pop stddev_samp sum try_avg var_pop var_samp variance
""".split()
)

# Aggregates that are well defined once their result is sorted.
SORTABLE = frozenset("array_agg collect_list collect_set".split())

# Aggregates whose result depends on the order in which rows arrive or partial results are merged.
ORDER_DEPENDENT = SORTABLE | frozenset(
    """
any_value approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine count_min_sketch first
first_value histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float last last_value listagg max_by
min_by mode percentile_approx string_agg theta_intersection_agg theta_sketch_agg theta_union_agg try_sum
tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
tuple_union_agg_double tuple_union_agg_integer
""".split()
)

CLOCKS = frozenset(
    """
curdate current_date current_time current_timestamp getdate localtime localtimestamp now sysdate systimestamp
""".split()
)

RANDOM = frozenset(
    """
aes_encrypt monotonically_increasing_id rand randn random randstr shuffle spark_partition_id uniform uuid
""".split()
)

# Their result depends on who runs the rule, where, or on which file a row came from.
SURROUNDINGS = frozenset(
    """
current_catalog current_database current_path current_schema current_timezone current_user input_file_block_length
input_file_block_start input_file_name session_user user version
""".split()
)

# The xpath functions fetch the DTD that a document names, from a file or another host.
OUTSIDE = frozenset(
    """
ai_query assert_true http_request java_method python_worker_logs raise_error read_files reflect try_reflect
xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
""".split()
)

GENERATORS = frozenset(
    """
collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range sql_keywords stack
variant_explode variant_explode_outer
""".split()
)

# Functions of a row's position among others. Those in TIED distinguish rows that are equal in the ORDER BY.
TIED = frozenset("first_value lag last_value lead nth_value ntile row_number".split())
RANKS = TIED | frozenset("cume_dist dense_rank percent_rank rank".split())

# Needs state that is not implemented yet.
STATEFUL = frozenset({"window_time"})

# Functions that tell which grouping set a result belongs to; and the calls in GROUP BY that define such sets.
GROUPING = frozenset({"grouping", "grouping_id"})
SETS = frozenset({"cube", "rollup", "sets"})

# Names that Spark reads as functions even without parentheses, if no column has the name.
BARE = frozenset(
    """
current_date current_path current_time current_timestamp current_user grouping__id localtime localtimestamp
session_user user
""".split()
)

# Windows of time: each of them names a kind of window, and the column that Spark adds for it.
WINDOWING = frozenset({"window", "session_window"})

# Windows of rows, which Spark has not: ours (see `collected`).
COLLECTING = frozenset({"count_window", "state_window"})

ALLOWED = WINDOWING | COLLECTING | SCALARS | TYPES | AGGREGATES | GROUPING
